"""Metrics of what heads read and write, from weights and from contributions to logits."""
