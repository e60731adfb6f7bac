"""`cells --ablation`: main effects of a study's factors."""

import argparse

from analysis.measure.rate import measure_rates
from analysis.measure.speed import group_arms
from analysis.read.find import read_logs
from analysis.study.ablation import effect_rows
from analysis.study.cells import started_runs
from analysis.table import put, remark

EXAMPLE = "ditbench cells logs/layouts-1120 --ablation"


def run(args: argparse.Namespace) -> int:
    """Print the effects; return 1 if no two cells differ in one factor only."""
    logs = started_runs(read_logs(args.paths))
    known = [log for log in logs if log.config is not None]
    rows = effect_rows(group_arms(measure_rates(known)))
    put(rows, args)
    remark(f"{log.name}: left out: its config is not known" for log in logs if log.config is None)
    if not rows:
        remark(["no two cells differ in one factor only"])
    return 0 if rows else 1
