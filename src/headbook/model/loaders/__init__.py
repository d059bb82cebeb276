"""Adapters and quantised weights: what other libraries add to a network that transformers loads."""
