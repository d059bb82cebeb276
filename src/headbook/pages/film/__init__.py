"""Pages of a film: the checkpoints of one model in order."""
