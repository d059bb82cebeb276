"""Results of a study, the facts computed from them, and their wording."""
