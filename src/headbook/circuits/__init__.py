"""Computation of what heads read and write, from their weights and from their outputs on the sample."""
