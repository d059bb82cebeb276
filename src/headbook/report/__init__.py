"""Results of a study, the claims and findings computed from them, and their wording."""
