"""The only package that runs Slurm's commands."""
