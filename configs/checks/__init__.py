"""Checks of a config against its data and models, before anything is queued."""
