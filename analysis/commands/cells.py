"""`cells`: one row per cell of a study."""

import argparse

from analysis.commands import add_margin
from analysis.measure.loss import Compared
from analysis.measure.loss_curve import axis_of
from analysis.read.find import read_logs
from analysis.study.cells import cell_rows, hardware_text, started_runs
from analysis.table import put, remark
from configs.errors import Unreadable

# The columns to leave out first of a table that is too wide.
DROP = ("MFU", "counts", "image_s", "gpu_gb", "images_per_s", "loss", "ended_early")
EXAMPLE = "ditbench cells logs/layouts-1120 --of validation_loss"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the loss, its axis and the margin for the same loss."""
    parser.add_argument(
        "--of", default="loss", metavar="NAME", help="show the last value of this, such as "
        "validation_loss (default: loss)",
    )  # fmt: skip
    parser.add_argument(
        "--by", choices=("images", "step"),
        help="compare losses over this (default: images, where all runs record them)",
    )  # fmt: skip
    add_margin(parser)


def run(args: argparse.Namespace) -> int:
    """Print the table, and below it the hardware."""
    logs = read_logs(args.paths)
    if all((log.config or {}).get("kind") == "gns" for log in logs):
        raise Unreadable(
            f"{args.paths[0]}: measures the gradient and has no rate: use ditbench noise"
        )
    waiting = len(logs) - len(started_runs(logs))
    logs = started_runs(logs)
    if not logs:
        raise Unreadable(f"{args.paths[0]}: none of its {waiting} runs has begun")
    compared = Compared(of=args.of, by=args.by or axis_of(logs), margin=args.margin)
    rows = cell_rows(logs, compared=compared)
    hardware = hardware_text(logs)
    put(rows, args, json={"cells": rows, "on": hardware}, drop=DROP)
    if not (args.json or args.csv):
        print(f"\non {hardware}" if hardware else "\nno run recorded its hardware")
    remark([f"{waiting} runs have not begun, and are left out"] if waiting else [])
    remark(line for log in logs for line in log.remarks)
    return 0
