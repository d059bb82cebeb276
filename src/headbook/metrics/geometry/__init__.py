"""Metrics of the geometry of states: the vectors of all tokens together."""
