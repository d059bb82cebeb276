"""The page of context and sentence ends."""
