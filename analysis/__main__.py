"""From run folders to tables and verdicts: `python -m analysis COMMAND PATHS`."""

import argparse
import sys

from analysis.commands import (
    ablation,
    archive,
    audit,
    cbs,
    cells,
    cost,
    finetune,
    gns,
    loss,
    profile,
    render,
    report,
    runs,
    scaling,
    speed,
    time_to_target,
)
from analysis.fail_if import failing, parse_condition
from analysis.table import remark
from configs.errors import Unreadable
from configs.terminal import while_read

COMMANDS = {
    "runs": runs,
    "speed": speed,
    "loss": loss,
    "scaling": scaling,
    "time-to-target": time_to_target,
    "audit": audit,
    "cost": cost,
    "report": report,
    "cells": cells,
    "ablation": ablation,
    "profile": profile,
    "finetune": finetune,
    "archive": archive,
    "render": render,
    "gns": gns,
    "cbs": cbs,
}
EXAMPLES = """examples:
  python -m analysis runs logs
  python -m analysis speed logs/one-rank logs/two-ranks
  python -m analysis loss logs/one-rank logs/two-ranks --by train_s --plot loss.png
  python -m analysis loss A B --exact && echo bitwise the same

exit codes: 0 good, 1 no, 2 misuse"""


def parser() -> argparse.ArgumentParser:
    """The command line: one sub-command per question."""
    plain = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(
        prog="python -m analysis", description=__doc__, epilog=EXAMPLES, formatter_class=plain
    )
    questions = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        epilog = f"example:\n  {command.EXAMPLE}"
        sub = questions.add_parser(
            name,
            help=command.DOC.replace("%", "%%"),
            description=command.DOC,
            epilog=epilog,
            formatter_class=plain,
        )
        sub.add_argument("paths", nargs="+", metavar="PATH", help="run folders, or folders of them")
        output = sub.add_mutually_exclusive_group()
        output.add_argument("--json", action="store_true", help="JSON on stdout")
        output.add_argument("--csv", action="store_true", help="CSV on stdout")
        sub.add_argument(
            "--fail-if",
            action="append",
            default=[],
            metavar="CONDITION",
            help='exit 1 where it holds of a row: "speedup_high<0.97", "verdict==different"',
        )
        command.options(sub)
        sub.set_defaults(act=command.act, rows=[])
    return top


def main(arguments: list[str]) -> int:
    """Carry out one command; the exit code."""
    asked = parser().parse_args(arguments)
    try:
        conditions = [parse_condition(text) for text in asked.fail_if]
        code = int(asked.act(asked))
        failed, remarks = failing(asked.rows, conditions)
        remark(remarks)
        return 1 if failed else code
    except Unreadable as error:
        remark(f"analysis {asked.command}: {line}" for line in str(error).splitlines())
        return 2


if __name__ == "__main__":
    sys.exit(while_read(lambda: main(sys.argv[1:])))
