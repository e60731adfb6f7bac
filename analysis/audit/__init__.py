"""Claims about runs, recomputed."""
