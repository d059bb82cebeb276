"""What the search finds."""
