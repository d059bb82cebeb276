"""A site as one archive or one file."""
