"""Readers of run folders and of other trainers' logs."""
