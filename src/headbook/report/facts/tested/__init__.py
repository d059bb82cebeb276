"""Rows of the table ``tests`` that tables, charts and cards of pages print, not one sentence."""
