"""What heads read and write, from their weights and from their outputs on the sample."""
