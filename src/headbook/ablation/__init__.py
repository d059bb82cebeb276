"""Ablation of attention heads, and its effects on the model's output."""
