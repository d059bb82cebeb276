"""Tokens of a tokenizer: which are special, and whether ids are those of its file."""
