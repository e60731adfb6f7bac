"""The beginning and the end of an attempt at a run."""
