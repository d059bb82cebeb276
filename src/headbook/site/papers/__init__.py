"""Figures alone, as papers take them."""
