"""The state of runs and jobs."""
