"""`cells --scaling`: speedup and efficiency by number of ranks."""

import argparse
from typing import Any

from analysis.measure.rate import measure_rates
from analysis.measure.speed import SPEED, Arm, group_arms, pooled_rate, speed_contrasts
from analysis.measure.speed_table import rate_fields
from analysis.read.find import read_logs
from analysis.read.machine import ranks
from analysis.study.cells import factors_of, started_runs
from analysis.table import put
from analysis.verdict import against_first

EXAMPLE = "ditbench cells logs/study-1120 --scaling"


def run(args: argparse.Namespace) -> int:
    """Print a row per number of ranks of cells that differ in nothing else; return 1 for none."""
    families: dict[tuple[str, ...], list[Arm]] = {}
    arms = group_arms(measure_rates(started_runs(read_logs(args.paths))))
    factors, levels = factors_of([arm.runs[0].log for arm in arms])
    place = next((n for n, names in enumerate(factors) if "ranks" in names.split(" + ")), None)
    for arm, own in zip(arms, levels, strict=True):
        if place is not None and ranks(arm.runs[0].log.facts):
            families.setdefault(own[:place] + own[place + 1 :], []).append(arm)
    rows = [row for family in families.values() for row in _rows(sorted(family, key=_ranks))]
    put(rows, args)
    return 0 if rows else 1


def _ranks(arm: Arm) -> int:
    return ranks(arm.runs[0].log.facts) or 0


def _rows(arms: list[Arm]) -> list[dict[str, Any]]:
    """Return a row per arm: its speedup over the one of the fewest ranks, by the ranks it took."""
    verdicts = against_first(speed_contrasts(arms), SPEED, names=[arm.name for arm in arms])
    rows = []
    for arm, verdict in zip(arms, verdicts, strict=True):
        rates, share = rate_fields(arm, pooled_rate(arm)), _ranks(arms[0]) / _ranks(arm)
        ends = {"efficiency": "ratio", "efficiency_low": "low", "efficiency_high": "high"}
        efficiency = {name: verdict[of] and verdict[of] * share for name, of in ends.items()}
        known = {name: rates[name] for name in ("images_per_s", "mfu")}
        rows.append({"run": arm.name, "ranks": _ranks(arm), **known, **verdict, **efficiency})
    return rows
