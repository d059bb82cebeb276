"""Metrics of how attention spreads over distances, keys and sentences."""
