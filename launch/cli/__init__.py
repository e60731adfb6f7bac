"""The command lines of the launcher's sub-commands."""
