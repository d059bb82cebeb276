"""Facts about the texts of a study: their regions."""
