"""Finding where attention blocks end, by what a pass shows."""
