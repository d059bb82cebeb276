"""The page of a head."""
