"""Rates, losses, costs and other measures of runs."""
