"""The page of similar heads."""
