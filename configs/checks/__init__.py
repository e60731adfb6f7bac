"""Checks of a config against its data and models, made before anything is queued."""
