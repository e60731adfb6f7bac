"""The command lines of the launcher's sub-commands.

Each action imports its command when it runs, so that `--help` answers at once.
"""

import argparse
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_site(command: argparse.ArgumentParser) -> None:
    """Add `--site`."""
    command.add_argument("--site", help="use env/sites/SITE.sh instead of this host's site file")


def add_forms(command: argparse.ArgumentParser, **forms: str) -> None:
    """Add a flag with its help for each form of output but text; `form` has the chosen one."""
    group = command.add_mutually_exclusive_group()
    for form, text in forms.items():
        group.add_argument(
            f"--{form}", dest="form", action="store_const", const=form, default="text", help=text
        )
