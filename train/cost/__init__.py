"""Forecast the memory per rank, the micro batch and the speed of a run before it is queued."""
