"""How a cluster behaves, measured by short jobs, and written down as a site file."""
