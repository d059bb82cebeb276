"""Parts of overviews: claims, the wall of heads, and differences of mean maps."""
