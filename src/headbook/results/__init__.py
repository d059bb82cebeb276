"""Numbers of a study as pages print them: with unit, interval and row, and inside sentences."""
