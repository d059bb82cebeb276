"""Pages of single numbers of a film."""
