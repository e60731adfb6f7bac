"""Statistics on plain numbers."""
