"""The command line of what is asked before a job, of a cluster, and after a job's end."""

import argparse
from pathlib import Path
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add(commands: Commands) -> None:
    """Add `preflight`."""
    _add_preflight(commands)


def _add_preflight(commands: Commands) -> None:
    preflight = commands.add_parser(
        "preflight",
        help="what would go wrong with a config, or with anybody's batch script",
        epilog="example: python -m launch preflight --script my.sbatch",
    )
    preflight.add_argument("overrides", nargs="*", metavar="key=value", help=argparse.SUPPRESS)
    preflight.add_argument(
        "--script", type=Path, metavar="FILE", help="read this sbatch file; nothing is run"
    )
    preflight.set_defaults(action=_preflight)


def _preflight(options: argparse.Namespace) -> int:
    from launch.rules.reading import read_script
    from launch.rules.verdicts import examine

    return examine(read_script(options.script))
