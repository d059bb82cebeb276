"""The page of cross-attention."""
