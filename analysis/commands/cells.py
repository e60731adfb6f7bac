"""`cells`: a study as a table."""

import argparse

from analysis.table import put, remark

DOC = "a row per cell of a study: rate over its repeats, speedup over the first cell, and loss"
EXAMPLE = "python -m analysis cells logs/layouts-1120 --of validation_loss"


def options(sub: argparse.ArgumentParser) -> None:
    """Which loss, over which axis, and what counts as the same."""
    sub.add_argument(
        "--of", default="loss", metavar="NAME", help="show what this came to, such as "
        "validation_loss (default: loss)",
    )  # fmt: skip
    sub.add_argument(
        "--by", choices=("images", "step"), default="images",
        help="compare training losses over this (default: images)",
    )  # fmt: skip
    sub.add_argument("--margin", type=float, default=0.01, help="of the same loss (default: 0.01)")


def act(asked: argparse.Namespace) -> int:
    """Print the table, and below it what all of it ran on."""
    from analysis.read.find import read_logs
    from analysis.study.cells import started_runs
    from analysis.study.cells_table import cell_rows, display_cell, hardware_text
    from configs.errors import Unreadable

    logs = read_logs(asked.paths)
    if all((log.config or {}).get("kind") == "gns" for log in logs):
        raise Unreadable(
            f"{asked.paths[0]}: measures the gradient, and has no rate: see python -m analysis gns"
        )
    waiting = len(logs) - len(started_runs(logs))
    logs = started_runs(logs)
    if not logs:
        raise Unreadable(f"{asked.paths[0]}: none of its {waiting} runs has begun")
    rows = cell_rows(logs, of=asked.of, by=asked.by, margin=asked.margin)
    if asked.json or asked.csv:
        put(rows, asked, json={"cells": rows, "on": hardware_text(logs)})
    else:
        put([display_cell(row) for row in rows], asked)
        print(f"\non {hardware_text(logs)}")
        asked.rows = rows
    remark([f"{waiting} runs have not begun, and are left out"] if waiting else [])
    remark(line for log in logs for line in log.remarks)
    return 0
