"""The list of metrics."""
