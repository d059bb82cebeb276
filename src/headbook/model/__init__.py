"""Loading of models, their architecture, forward passes, and readings of weights and states."""
