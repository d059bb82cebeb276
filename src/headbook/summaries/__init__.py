"""What survives of a batch: sums that add, and what they give in the end."""
