"""Sentences that answer the questions of pages, chosen by rules from a study's numbers."""
