"""`runs --finetune`: fine-tuning runs by device and steps, and seconds per image."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from analysis.commands import writing
from analysis.measure.finetune import display_row, finetune_rows, image_rows, of_kind, speedup_rows
from analysis.measure.sample_grid import render_png, sample_grids
from analysis.read.find import read_logs
from analysis.read.run_log import RunLog
from analysis.table import put, remark
from configs.disk import replace_file
from configs.errors import Unreadable
from configs.table import text_table

EXAMPLE = "ditbench runs --finetune logs/b-lora-1120 logs/b-draw-1120 --plot samples.png"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the grid of samples."""
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="also draw the samples by prompt, device and step, beside training images: .png",
    )


def run(args: argparse.Namespace) -> int:
    """Print the tables that are not empty; return 1 if all are."""
    logs = read_logs(args.paths)
    tuned = of_kind(logs, "finetune")
    drawn = image_rows([*of_kind(logs, "infer"), *tuned])
    tables = {
        "runs": finetune_rows(tuned),
        "speedups": speedup_rows(tuned),
        "drawing": [row for row in drawn if row["image_s"] is not None],
    }
    if args.json or args.csv:
        put(tables["runs"], args, json=tables)
    else:
        args.rows = tables["runs"]
        shown = [[display_row(row) for row in rows] for rows in tables.values() if rows]
        print("\n\n".join(text_table(rows, whole=args.all) for rows in shown))
    remark(line for log in logs for line in log.remarks)
    if args.plot:
        _draw(args.plot, tuned)
    return 0 if any(tables.values()) else 1


def _draw(path: Path, logs: Sequence[RunLog]) -> None:
    if path.suffix != ".png":
        raise Unreadable(f"--plot {path}: does not end in .png")
    found = sample_grids(logs)
    remark(found.refusals)
    if not found.grids:
        raise Unreadable(f"--plot {path}: these runs have no samples to draw")
    with writing(path):
        replace_file(path, render_png(found.grids))
