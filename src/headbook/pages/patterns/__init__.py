"""The page of attention patterns."""
