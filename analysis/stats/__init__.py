"""Statistics on plain numbers and numpy arrays."""
