"""Claims of the overview, with their evidence, and what else its first screen prints."""
