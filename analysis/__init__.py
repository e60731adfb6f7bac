"""From log folders to tables, plots and verdicts; imports no torch."""
