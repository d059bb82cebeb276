"""What the numbers of a study say, and how it is written."""
