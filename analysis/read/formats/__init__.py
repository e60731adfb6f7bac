"""Log formats of other trainers."""
