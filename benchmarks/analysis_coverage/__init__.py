"""Planted truth for the analysis commands: how often their intervals and verdicts are right."""
