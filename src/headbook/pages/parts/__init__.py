"""Parts that several pages share: tables, the menu, and the base of every page."""
