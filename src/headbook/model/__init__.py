"""The model: loading it, what it is made of, its tokens, the attention hook and its passes."""
