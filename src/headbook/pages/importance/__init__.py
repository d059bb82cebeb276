"""What the model loses without each head."""
