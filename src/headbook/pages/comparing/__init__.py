"""How two models are compared."""
