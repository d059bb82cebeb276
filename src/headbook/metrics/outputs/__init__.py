"""What heads write."""
