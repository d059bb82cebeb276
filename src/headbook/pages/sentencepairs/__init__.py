"""The list of sentences that two models read."""
