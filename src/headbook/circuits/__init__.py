"""Computation of what heads read and write, from weights and from outputs on the sample."""
