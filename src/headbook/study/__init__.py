"""A study: its facts, saved, loaded, merged, and as tables."""
