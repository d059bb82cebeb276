"""Metrics of head outputs."""
