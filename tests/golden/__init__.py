"""Stored pages, the study they were made of, and the command that makes them anew."""
