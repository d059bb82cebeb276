"""The list of heads."""
