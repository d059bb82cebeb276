"""The page of all heads of a film."""
