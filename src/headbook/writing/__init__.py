"""From pages and tables to files."""
