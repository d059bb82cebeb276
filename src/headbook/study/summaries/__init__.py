"""What survives of a batch: sums that add."""
