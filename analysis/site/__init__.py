"""A static site of runs and studies that opens from a file, without a server."""
