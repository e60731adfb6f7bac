"""Diffusion objectives, times, and the random numbers of examples."""
