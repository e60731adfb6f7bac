"""Diffusion objectives, timesteps and the randomness of examples."""
