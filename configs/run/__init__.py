"""The run folder, its records, and what Slurm and git say about a run."""
