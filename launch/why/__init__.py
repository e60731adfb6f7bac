"""Find the root cause of a run's or job's end, the lines that show it, and the next command."""
