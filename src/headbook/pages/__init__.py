"""Pages of a site as frozen values, without HTML: one folder of modules for each large page."""
