"""From files and a model to a study: all passes, one after the other."""
