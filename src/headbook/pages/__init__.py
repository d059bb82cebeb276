"""Studies to pages: one folder a page; frozen values, no HTML."""
