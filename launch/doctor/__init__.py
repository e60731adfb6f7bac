"""Measure how a cluster behaves with short jobs, and write the results as a site file."""
