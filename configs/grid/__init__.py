"""Studies: reading a study file and resolving it to cells."""
