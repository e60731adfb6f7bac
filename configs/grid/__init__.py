"""Studies: read a study file and resolve it to cells."""
