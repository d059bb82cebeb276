"""The list of sentences."""
