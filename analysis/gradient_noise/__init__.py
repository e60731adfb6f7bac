"""The gradient noise scale of runs."""
