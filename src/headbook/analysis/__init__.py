"""Arithmetic on arrays: fits, trees, clouds of vectors, sums that add, intervals."""
