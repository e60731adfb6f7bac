"""The sub-commands: each module has an `EXAMPLE`, `options` to add flags, and `run`."""
