"""Metrics of the keys that receive attention: sink, separators, rare words, neighbours."""
