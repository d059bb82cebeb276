"""A study: what was collected, as one value that is saved, loaded and merged."""
