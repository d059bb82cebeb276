"""What readers open and turn on several pages: maps, panels, lists of sentences."""
