"""Latent stores: their files, reading, checks, and encoding by a VAE."""
