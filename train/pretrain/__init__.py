"""Pretraining: the run, its step and its evaluations."""
