"""What a model's answer loses where heads are taken away."""
