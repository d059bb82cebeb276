"""How attention spreads: over distances, over keys, over sentences."""
