"""The state of each token: against its input and the vocabulary."""
