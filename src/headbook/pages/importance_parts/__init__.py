"""Parts of the page on importance."""
