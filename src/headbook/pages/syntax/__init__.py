"""The page of relations and trees."""
