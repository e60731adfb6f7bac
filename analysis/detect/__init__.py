"""Detectors of faults in a run."""
