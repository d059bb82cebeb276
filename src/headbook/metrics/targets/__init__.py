"""Which tokens attention goes to: the sink, separators, rare words, neighbours."""
