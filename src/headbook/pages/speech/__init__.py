"""The page of parts of speech."""
