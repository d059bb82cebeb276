"""The page of attention flow."""
