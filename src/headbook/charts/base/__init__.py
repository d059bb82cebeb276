"""What charts are made of: colours, pictures, and their bytes as SVG, PDF and PNG."""
