"""The page of the geometry of states."""
