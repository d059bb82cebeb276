"""The overview of checkpoints, and what all of its pages share."""
