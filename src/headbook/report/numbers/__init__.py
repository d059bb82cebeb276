"""Numbers of a study by name, and what follows from them."""
