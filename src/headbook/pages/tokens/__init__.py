"""The page of token types."""
