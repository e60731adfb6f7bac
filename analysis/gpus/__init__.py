"""The cost, the energy and the load of the GPUs of a run."""
