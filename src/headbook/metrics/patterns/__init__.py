"""Which shape the attention of a head has, and what it repeats."""
