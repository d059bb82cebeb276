"""Sums that a study holds: of tokens, words and states, and of buckets of sentences."""
