"""Parts of the page of a head."""
