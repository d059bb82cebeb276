"""One sentence in two models."""
