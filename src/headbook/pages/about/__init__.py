"""The page about Headbook."""
