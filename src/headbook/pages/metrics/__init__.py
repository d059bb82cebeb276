"""Sections of the pages of metrics."""
