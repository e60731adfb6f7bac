"""`cells --scaling`: speedup and efficiency by number of ranks."""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from analysis.measure.arms import Arm, group_arms, rate_fields
from analysis.measure.differences import causes, differences
from analysis.measure.rate import measure_rates
from analysis.measure.speed import SPEED, speed_contrast
from analysis.observations import ran_at_once
from analysis.read.find import read_logs
from analysis.read.machine import THREADS, ranks
from analysis.stats.contrast import of_cells
from analysis.stats.replicates import refused
from analysis.study.cells import factors_of, started_runs
from analysis.table import put, remark
from analysis.verdict import Comparison, verdicts

EXAMPLE = "ditbench cells logs/study-1120 --scaling"
# What follows from the number of ranks.
BATCH = "train.global_batch"
OF_RANKS = frozenset(["ranks", "nodes", THREADS])


def run(args: argparse.Namespace) -> int:
    """Print a row per number of ranks of cells that differ in nothing else; return 1 for none.

    What varies in step with the ranks divides no cells, so that it can be named.
    """
    arms = group_arms(measure_rates(started_runs(read_logs(args.paths))))
    families: dict[tuple[str, ...], list[Arm]] = {}
    factors, levels = factors_of([arm.runs[0].log for arm in arms])
    kept = [n for n, names in enumerate(factors) if OF_RANKS.isdisjoint(names.split(" + "))]
    for arm, own in zip(arms, levels, strict=True):
        if _ranks(arm) and arm.runs[0].log.config is not None:
            families.setdefault(tuple(own[n] for n in kept), []).append(arm)
    ordered = [sorted(family, key=_ranks) for family in families.values()]
    scaled = [family for family in ordered if _ranks(family[0]) < _ranks(family[-1])]
    alone = [arm.name for family in ordered if family not in scaled for arm in family]
    pairs = [(family[0], arm) for family in scaled for arm in family]
    at_once = ran_at_once([run.log for arm in arms for run in arm.runs])
    judged = verdicts([_comparison(*pair, at_once) for pair in pairs])
    rows = [_row(base, arm, found) for (base, arm), found in zip(pairs, judged, strict=True)]
    put(rows, args, drop=("mfu", "images_per_s"))
    remark(f"{name}: left out: no other number of ranks with the same settings" for name in alone)
    unknown = [arm.name for arm in arms if not _ranks(arm) or arm.runs[0].log.config is None]
    remark(f"{name}: left out: its ranks or its config are not known" for name in unknown)
    return 0 if rows else 1


def _ranks(arm: Arm) -> int:
    return ranks(arm.runs[0].log.facts) or 0


def _comparison(base: Arm, arm: Arm, at_once: Mapping[int, str]) -> Comparison | None:
    if arm is base:
        return None
    found = causes(differences(base.runs[0].log, arm.runs[0].log), of="clock")
    others = [item for item in found if item.name not in OF_RANKS | {"seed"}]
    unlike = ", ".join(str(item) for item in others if item.name != BATCH)
    if unlike:
        contrast = refused(f"more than the ranks differs ({unlike})")
    else:
        contrast = of_cells(speed_contrast(base, arm, at_once=at_once), SPEED)
        contrast = replace(contrast, remarks=(*contrast.remarks, *map(str, others)))
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
