"""Submit runs to a Slurm cluster, watch them, and find out why they ended."""
