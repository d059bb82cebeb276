"""Parts of the page on how words travel through the layers."""
