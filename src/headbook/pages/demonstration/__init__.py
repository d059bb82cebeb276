"""The page of one sentence beside a public demonstration."""
