"""The page of groups of sentences."""
