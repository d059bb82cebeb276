"""Weights of a network: loaded, and found where they are kept."""
