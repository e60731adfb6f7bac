"""`runs --finetune`: fine-tuning runs by device and steps, and seconds per image."""

import argparse

from analysis.measure.finetune import display_row, finetune_rows, image_rows, of_kind, speedup_rows
from analysis.read.find import read_logs
from analysis.table import put, remark
from configs.table import text_table

EXAMPLE = "ditbench runs --finetune logs/b-lora-1120 logs/b-draw-1120"


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
    return 0 if any(tables.values()) else 1
