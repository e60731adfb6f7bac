"""The data sets that a run can train on, and how batches are made of them."""
