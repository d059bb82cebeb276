"""Passes over texts with the model, and the accumulators that they fill."""
