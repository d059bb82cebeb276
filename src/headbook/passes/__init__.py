"""The passes over texts and model, and what they fill."""
