"""The page of a metric."""
