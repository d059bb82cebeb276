"""Facts on what columns of the input ask for: groups of sentences, minimal pairs."""
