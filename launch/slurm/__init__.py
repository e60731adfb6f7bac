"""Slurm's commands and submitit: the only package that runs them."""
