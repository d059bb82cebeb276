"""The model: how it is loaded, what it is made of, and what is read while it runs."""
