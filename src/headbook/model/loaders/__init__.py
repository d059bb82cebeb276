"""Models that do not come from a checkpoint by its name."""
