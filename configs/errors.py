"""Errors that a person can fix; the message says how."""


class ConfigError(ValueError):
    """A config, a command line or an input cannot be used as given."""


class DataError(ValueError):
    """A data set, or a file of one, cannot be trained on; the message names it."""


class Unreadable(ValueError):
    """A log or a run folder cannot be read as asked; the message says which and why."""
