"""What only shows after hundreds of runs."""
