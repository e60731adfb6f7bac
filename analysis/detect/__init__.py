"""Detectors of what went wrong in a run."""
