"""The states of all tokens as clouds of vectors."""
