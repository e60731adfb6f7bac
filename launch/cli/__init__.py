"""The command lines of the launcher's sub-commands.

Each action imports its command when it runs, so that `--help` answers at once.
"""

import argparse
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_site(command: argparse.ArgumentParser) -> None:
    """Add `--site`."""
    command.add_argument("--site", help="use env/sites/SITE.sh instead of this host's site file")


def add_json(command: argparse.ArgumentParser, text: str) -> None:
    """Add `--json`; `form` is then json, else text."""
    command.add_argument(
        "--json", dest="form", action="store_const", const="json", default="text", help=text
    )
