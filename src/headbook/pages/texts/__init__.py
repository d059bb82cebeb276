"""Pages on the texts of a study: their regions."""
