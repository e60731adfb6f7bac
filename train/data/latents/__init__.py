"""Latent stores: encoding, files and reading."""
