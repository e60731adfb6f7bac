"""`runs --finetune`: fine-tuning runs by device and steps, and seconds per image."""

import argparse

from analysis.measure.finetune import finetune_rows, image_rows, of_kind, speedup_rows
from analysis.read.find import read_logs
from analysis.table import put, put_more, remark

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
    put(tables["runs"], args, json=tables)
    if not args.csv:
        put_more(tables["speedups"], args, title="speedup at equal steps")
        put_more(tables["drawing"], args, title="seconds per image")
    remark(line for log in logs for line in log.remarks)
    return 0 if any(tables.values()) else 1
