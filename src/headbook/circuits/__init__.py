"""What heads read and write, from weights and from passes over texts."""
