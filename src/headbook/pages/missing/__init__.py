"""The page for wrong addresses."""
