"""Sentences as words and tokens, and batches of them."""
