"""The page of published results."""
