"""`cells --scaling`: speedup and efficiency by number of ranks."""

import argparse
from collections.abc import Mapping
from typing import Any

from analysis.measure.rate import measure_rates
from analysis.measure.speed import SPEED, Arm, group_arms, speed_contrast
from analysis.measure.speed_table import rate_fields
from analysis.observations import ran_at_once
from analysis.read.find import read_logs
from analysis.read.machine import ranks
from analysis.study.cells import factors_of, started_runs
from analysis.table import put
from analysis.verdict import Comparison, verdicts

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
    ordered = [sorted(family, key=_ranks) for family in families.values()]
    pairs = [(family[0], arm) for family in ordered for arm in family]
    at_once = ran_at_once([run.log for arm in arms for run in arm.runs])
    judged = verdicts([_comparison(*pair, at_once) for pair in pairs])
    rows = [_row(base, arm, found) for (base, arm), found in zip(pairs, judged, strict=True)]
    put(rows, args, drop=("mfu", "images_per_s"))
    return 0 if rows else 1


def _ranks(arm: Arm) -> int:
    return ranks(arm.runs[0].log.facts) or 0


def _comparison(base: Arm, arm: Arm, at_once: Mapping[int, str]) -> Comparison | None:
    if arm is base:
        return None
    contrast = speed_contrast(base, arm, at_once=at_once)
    return Comparison(base=base.name, arm=arm.name, quantity=SPEED, contrast=contrast)


def _row(base: Arm, arm: Arm, verdict: Mapping[str, Any]) -> dict[str, Any]:
    """Return the speedup of an arm over the one of the fewest ranks, also by the ranks it took."""
    rates, share = rate_fields(arm), _ranks(base) / _ranks(arm)
    ends = {"efficiency": "ratio", "efficiency_low": "low", "efficiency_high": "high"}
    return {
        "run": arm.name,
        "ranks": _ranks(arm),
        "images_per_s": rates["images_per_s"],
        "mfu": rates["mfu"],
        **verdict,
        **{name: verdict[of] and verdict[of] * share for name, of in ends.items()},
    }
