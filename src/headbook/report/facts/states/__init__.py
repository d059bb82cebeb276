"""Facts about the states of tokens: their paths, their space, and words in several sentences."""
