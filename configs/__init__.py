"""The code that every part shares: the schema of configs, their loading, and the run folder."""
