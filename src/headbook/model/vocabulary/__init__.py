"""States against the vocabulary: the nearest entries, and what the head of the model answers."""
