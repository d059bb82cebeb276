"""What several pages have: tables, the menu, and the base of every page."""
