"""The energy and the load of the GPUs of a run, from the readings of its nodes."""
