"""The page of data files."""
