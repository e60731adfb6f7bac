"""Sampling, FID and other measures of sample quality."""
