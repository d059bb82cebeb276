"""Rows of the table `tests`: the claims that pages make, with values, baselines and p."""
