"""Metrics of the shape of a head's attention, and of repetition."""
