"""`cost`: GPU-hours and energy of runs."""

import argparse

from analysis.gpus.cost import cost_row
from analysis.measure.time_breakdown import time_breakdown
from analysis.read.find import read_logs
from analysis.table import put, remark

EXAMPLE = "ditbench cost logs"

# Samplers begin and end with the ranks, some seconds after and before the job.
LEAST_SHARE = 0.95
NOT_RECORDED = "no GPU, or no start and end of an attempt, is recorded"


def run(args: argparse.Namespace) -> int:
    """Print a row per run."""
    logs = read_logs(args.paths)
    rows = [cost_row(log) for log in logs]
    put(rows, args)
    remark(
        f"{log.name}: GPU-hours unknown: {log.uncertain.get('time', NOT_RECORDED)}"
        for log, row in zip(logs, rows, strict=True)
        if row["gpu_hours"] is None
    )
    others = (log for log in logs if not log.state.has_events)
    paused = [(log.name, found.seconds.get("between")) for log in others
              if (found := time_breakdown(log))]  # fmt: skip
    remark(
        f"{name}: without {seconds / 3600:.3g} h in long pauses between records, in which it may "
        "have waited for a job"
        for name, seconds in paused
        if seconds
    )
    remark(
        f"{row['run']}: readings of its GPUs cover {row['energy_share']:.0%} of their time"
        for row in rows
        if (row["energy_share"] or 1) < LEAST_SHARE
    )
    return 0
