"""Read the state of runs and of their jobs, and follow them."""
