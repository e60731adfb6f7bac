"""Measure how a cluster behaves by a short job, and write the results as a site file."""
