"""Charts that Vega-Lite draws."""
