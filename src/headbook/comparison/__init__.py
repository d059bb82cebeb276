"""Comparison of two finished studies of the same sentences, and of many checkpoints. No torch."""
