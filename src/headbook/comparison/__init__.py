"""Two finished studies of the same sentences, held against each other. No torch."""
