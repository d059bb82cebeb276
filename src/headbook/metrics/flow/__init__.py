"""What attention carries from token to token."""
