"""Metrics of what heads read and write, from weights or from the tokens that outputs promote."""
