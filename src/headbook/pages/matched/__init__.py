"""Heads of two models that attend alike."""
