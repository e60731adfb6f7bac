"""`cost`: GPU-hours and energy of runs."""

import argparse

from analysis.measure.cost import cost_row
from analysis.read.find import read_logs
from analysis.table import put, remark

EXAMPLE = "ditbench cost logs"

# Samplers begin and end with the ranks, some seconds after and before the job.
LEAST_SHARE = 0.95


def run(args: argparse.Namespace) -> int:
    """Print a row per run."""
    logs = read_logs(args.paths)
    rows = [cost_row(log) for log in logs]
    put(rows, args)
    if unknown := [row["run"] for row in rows if row["gpu_hours"] is None]:
        of = unknown[0] if len(unknown) == 1 else f"{unknown[0]} and {len(unknown) - 1} more"
        remark([f"{of}: GPU-hours unknown: no GPU, or no start and end, is recorded"])
    remark(
        f"{row['run']}: readings of its GPUs cover {row['energy_share']:.0%} of their time"
        for row in rows
        if (row["energy_share"] or 1) < LEAST_SHARE
    )
    return 0
