"""Sums of one stack over one batch."""
