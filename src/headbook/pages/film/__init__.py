"""The overview of a film, and what all of its pages share."""
