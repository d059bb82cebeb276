"""The page of one head."""
