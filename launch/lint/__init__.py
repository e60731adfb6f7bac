"""Lint batch scripts: a rule per known mistake; no script is run."""
