"""Metrics of the state of each token, compared with its input and the vocabulary."""
