"""A metric in two models: side by side, as differences, and as points."""
