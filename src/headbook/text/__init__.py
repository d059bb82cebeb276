"""Words and tokens of sentences, and their padded batches."""
