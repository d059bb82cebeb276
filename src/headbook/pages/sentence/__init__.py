"""The page of a sentence."""
