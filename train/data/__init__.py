"""The data sets that a run can train on, and the loader of their microbatches."""
