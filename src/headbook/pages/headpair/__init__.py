"""The page of two heads that correspond, or that attend alike."""
