"""Metrics that compare attention with annotation: parts of speech, relations, trees, words."""
