"""Charts drawn as SVG by hand."""
