"""Logs of training, ours and others', as one neutral structure."""


class Unreadable(ValueError):
    """What a person named cannot be read as asked; the message says which and why."""
