"""Facts by subject: what a study shows, as sentences and numbers with their evidence."""
