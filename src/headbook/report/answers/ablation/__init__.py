"""Sentences and numbers on what the model, or a task, loses without heads."""
