"""Attention of a layer in sink views, states of tokens, and the sums that metrics share."""
