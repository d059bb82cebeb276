"""Pages and tables to files: the site, archives, figures for papers."""
