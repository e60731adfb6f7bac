"""`ditbench COMMAND PATHS`: tables, plots and verdicts from run folders and logs."""

import argparse
import importlib
import sys
from dataclasses import replace

from configs.errors import ConfigError, Unreadable
from configs.terminal import guarded
from runs.lookup import look_up

# The command and its help; analysis/commands/ holds a module for each.
COMMANDS = {
    "runs": "one row per run: state, step, loss, rate, ranks, attempts, where it ran",
    "compare": "speed, loss and quality against the first run or arm, one verdict each",
    "speed": "mean rate of each run and its speedup over the first, with 95 % intervals",
    "loss": "loss of each run against the first: same within a margin, different or undetermined",
    "cells": "one row per cell of a study: rate over its repeats, speedup and loss",
    "target": "time to a target loss or evaluation, by devices and batch, and its factors",
    "noise": "gradient noise scale over training and by bins of t, with intervals",
    "cost": "GPU-hours and energy of runs",
    "report": "one self-contained HTML page on the runs, or a folder; --check recomputes it",
    "export": "send runs to wandb, each step once, or write them as one table",
    "audit": "claims in a YAML file, recomputed from their runs",
    "archive": "pack the records of runs into a small .tar.xz, without names of machines",
}
# Other views of what a command reads, each with a module and options of its own.
VIEWS = {
    "cells": {
        "ablation": "main effects of the study's factors",
        "scaling": "speedup and efficiency by number of ranks",
        "decided": "what the study has settled so far, by intervals that hold at any time",
    },
    "target": {"critical-batch": "the critical batch size, from runs of several batches"},
}
EXAMPLES = """examples:
  ditbench runs logs
  ditbench speed logs/one-rank logs/two-ranks
  ditbench compare logs/one-rank logs/two-ranks
  ditbench loss logs/one-rank logs/two-ranks --by train_s --plot loss.png
  ditbench loss A B --exact && echo bitwise the same

exit codes: 0 good, 1 no, 2 misuse"""


def main(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    args = _parser(arguments).parse_args(arguments)
    # numpy takes longer to import than --help takes to answer.
    from analysis.table import remark

    def act() -> int:
        try:
            args.paths = [str(look_up(path)) for path in args.paths]
            return _run(args)
        except (Unreadable, ConfigError) as error:
            remark(f"analysis {args.command}: {line}" for line in str(error).splitlines())
            return 2

    return guarded(act)


def _run(args: argparse.Namespace) -> int:
    """Run the command, with the user's own way to read logs if there is one."""
    from analysis.read.options import parse_options, reading_with

    options = parse_options(pattern=args.pattern, columns=args.columns, facts=args.set)
    # `runs` gives the names by which other commands find them.
    is_long = args.json or args.csv or args.command == "runs"
    with reading_with(replace(options, short_names=not is_long)):
        return int(args.run(args))


def _parser(arguments: list[str]) -> argparse.ArgumentParser:
    """Return the parser; only the module of the command in `arguments` is imported, for speed."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="ditbench", description=__doc__, epilog=EXAMPLES, formatter_class=plain
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in COMMANDS.items():
        command = commands.add_parser(
            name, help=text.replace("%", "%%"), description=text, formatter_class=plain
        )
        if name == next(iter(arguments), None):
            _add_options(command, name, arguments)
    return parser


def _add_options(command: argparse.ArgumentParser, name: str, arguments: list[str]) -> None:
    """Add the options of a command, or of the view of it that `arguments` ask for."""
    views = VIEWS.get(name, {})
    chosen = next((view for view in views if f"--{view}" in arguments), name)
    for view, text in views.items():
        command.add_argument(f"--{view}", action="store_true", help=f"instead: {text}")
    module = importlib.import_module(f"analysis.commands.{chosen.replace('-', '_')}")
    command.epilog = f"example:\n  {module.EXAMPLE}"
    if hasattr(module, "options"):
        module.options(command)
    command.add_argument(
        "paths", nargs="+", metavar="PATH", help="run folders or their names, logs, or folders"
    )
    output = command.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print JSON")
    output.add_argument("--csv", action="store_true", help="print CSV")
    command.add_argument("--all", action="store_true", help="print all columns, however wide")
    logs = command.add_argument_group("logs of other trainers (see also logs.yaml)")
    logs.add_argument(
        "--pattern", metavar="REGEX", help=r"of a line: 'step (?P<step>\d+).*?loss (?P<loss>\S+)'"
    )
    logs.add_argument("--columns", metavar="NAMES", help="columns: step=iter,loss=total_loss")
    logs.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="what a log does not say: gpus=8, batch=256, or a pattern for its path: gpus=n(\\d+)",
    )
    command.set_defaults(run=module.run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
