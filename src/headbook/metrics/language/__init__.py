"""Attention against annotation: parts of speech, relations, trees, words."""
