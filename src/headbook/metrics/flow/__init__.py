"""Metrics of the flow of attention from token to token."""
