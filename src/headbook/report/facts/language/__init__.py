"""Facts about language: relations between words, alignment of source and target."""
