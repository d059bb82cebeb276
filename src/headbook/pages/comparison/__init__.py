"""The overview of two models side by side."""
