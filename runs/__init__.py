"""The run folder and its records, the reasons of failure, and facts from Slurm and git."""
