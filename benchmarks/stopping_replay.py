"""Studies that stop when they are answered, replayed over published runs of many seeds.

    python -m benchmarks.stopping_replay RESULTS

RESULTS is a checkout of MLCommons' training results: `*/results/SYSTEM/BENCHMARK/result_N.txt`,
each one run with its own seed. A study is one benchmark at one global batch with one unit of
progress, its cells are the systems, and its quantities the time of a run and its rate. The runs
arrive in order of N; a cell is compared with the first system after each, as `ditbench analysis
decide` does with seeds as an axis: both quantities share the error, and a cell ends when both are
settled or out of reach. For each quantity there are the verdicts, those of Student's test of all
runs at the end, and those that are the same.
"""

import argparse
import json
import math
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import stdtrit

from analysis.stats.intervals import Floats
from analysis.stats.sequential import Planned, interval_so_far, is_in_reach, side
from configs.schema.study import FEWEST_REPEATS
from configs.table import text_table

MARGIN = 0.02
_LOGS = "*/results/*/*/result_*.txt"
_LINE = re.compile(r":::MLLOG (\{.*\})")
_QUANTITIES = ("time", "rate")
_COUNTS = (
    "cells", "runs", "made",
    *(f"{of}_{count}" for of in _QUANTITIES for count in ("verdicts", "at_the_end", "the_same")),
)  # fmt: skip
_PROGRESS = ("samples_count", "epoch_num", "step_num", "epoch_count")


@dataclass(frozen=True, kw_only=True)
class PublishedRun:
    """One run: its global batch, the logs of its seconds, and of its progress per second.

    The progress counts one of `_PROGRESS`, the `unit`.
    """

    batch: int
    unit: str
    time: float
    rate: float


def read_run(path: Path) -> PublishedRun | None:
    """Return a run, None if it was not completed or does not say how far it went."""
    batch: int | None = None
    start, stop, progress, unit = None, None, None, ""
    for found in _LINE.finditer(path.read_text(encoding="utf-8", errors="replace")):
        try:
            event = json.loads(found[1])
        except ValueError:
            continue
        key, metadata = event["key"], event.get("metadata") or {}
        if key == "global_batch_size":
            batch = int(event["value"])
        elif key == "run_start":
            start = event["time_ms"]
        elif key == "run_stop" and metadata.get("status") == "success":
            stop = event["time_ms"]
        if key in ("eval_accuracy", "run_stop"):
            passed = ((metadata[name], name) for name in _PROGRESS if metadata.get(name))
            progress, unit = next(passed, (progress, unit))
    if batch is None or start is None or stop is None or progress is None:
        return None
    seconds = (stop - start) / 1e3
    time, rate = math.log(seconds), math.log(progress / seconds)
    return PublishedRun(batch=batch, unit=unit, time=time, rate=rate)


def read_studies(results: Path) -> dict[tuple[str, int, str], dict[str, list[PublishedRun]]]:
    """Return by benchmark, batch and unit the systems and their runs, in order of their numbers."""
    studies: dict[tuple[str, int, str], dict[str, list[PublishedRun]]] = defaultdict(dict)
    for folder in sorted(results.glob("*/results/*/*")):
        numbered = {int(re.sub(r"\D", "", file.stem)): file for file in folder.glob("result_*.txt")}
        runs = [run for _, file in sorted(numbered.items()) if (run := read_run(file))]
        if len(runs) > FEWEST_REPEATS and len({(run.batch, run.unit) for run in runs}) == 1:
            system = f"{folder.parts[-4]}/{folder.parts[-2]}"
            studies[folder.name, runs[0].batch, runs[0].unit][system] = runs
    return {name: systems for name, systems in studies.items() if len(systems) > 1}


def replay(quantities: Sequence[list[Floats]]) -> tuple[int, ...]:
    """Return the runs made, then the verdicts, those of all runs, and the shared ones of each.

    Each of `quantities` has the logs of the cells, each of shape [runs]; the first is the base.
    """
    first, *others = map(len, quantities[0])
    most = max(min(first, other) for other in others)
    contrasts = len(quantities) * len(others)
    planned = Planned(contrasts=contrasts, least=FEWEST_REPEATS, most=most, margin=MARGIN)
    verdicts: dict[tuple[int, int], int | None] = {}
    made = [FEWEST_REPEATS] * (1 + len(others))
    still_open = set(range(len(others)))
    for n in range(FEWEST_REPEATS, most + 1):
        if not still_open:
            break
        made[0] = n
        for cell in still_open:
            made[cell + 1] = min(n, others[cell])
        for cell in sorted(still_open):
            repeats, is_open = min(n, others[cell], first), False
            for number, logs in enumerate(quantities):
                cells = [values[:count] for values, count in zip(logs, made, strict=True)]
                pair = np.stack([logs[cell + 1][:repeats], logs[0][:repeats]])
                found = interval_so_far(pair, planned, cells=cells)
                where = side(found, margin=MARGIN) if found else None
                verdicts[number, cell] = where
                is_open |= where is None and is_in_reach(pair, planned, cells=cells)
            if not is_open or repeats == min(others[cell], first):
                still_open.remove(cell)
    counts = [sum(made)]
    for number, (base, *rest) in enumerate(quantities):
        final = [_at_the_end(other, base, contrasts=contrasts) for other in rest]
        early = [verdicts[number, cell] for cell in range(len(rest))]
        counts += [sum(where is not None for where in some) for some in (early, final)]
        pairs = zip(early, final, strict=True)
        counts.append(sum(where is not None and where == last for where, last in pairs))
    return tuple(counts)


def _at_the_end(other: Floats, first: Floats, *, contrasts: int) -> int | None:
    """Return the verdict of Student's test of two arms on all their runs (Bonferroni)."""
    freedom = len(other) + len(first) - 2
    squares = float(other.var() * len(other) + first.var() * len(first)) / freedom
    error = math.sqrt(squares * (1 / len(other) + 1 / len(first)))
    half = float(stdtrit(freedom, 1 - 0.025 / contrasts)) * error
    shift = float(other.mean() - first.mean())
    if abs(shift) + half <= math.log1p(MARGIN):
        return 0
    return int(np.sign(shift)) if abs(shift) > half else None


def main(arguments: list[str]) -> int:
    """Print a row per study, and their sums; return 2 if there is no study."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("results", type=Path)
    results = options.parse_args(arguments).results
    studies = read_studies(results)
    if not studies:
        print("no two systems with more than three completed runs each", file=sys.stderr)
        return 2
    rows, total = [], np.zeros(len(_COUNTS), dtype=int)
    scatter: dict[str, list[float]] = {quantity: [] for quantity in _QUANTITIES}
    for (benchmark, batch, unit), systems in sorted(studies.items()):
        quantities = [
            [np.array([getattr(run, quantity) for run in runs]) for runs in systems.values()]
            for quantity in _QUANTITIES
        ]
        for quantity, logs in zip(_QUANTITIES, quantities, strict=True):
            scatter[quantity] += [float(of_system.std(ddof=1)) for of_system in logs]
        counts = (len(systems), sum(map(len, systems.values())), *replay(quantities))
        total += counts
        named = {"benchmark": benchmark, "batch": batch, "progress": unit}
        rows.append(named | dict(zip(_COUNTS, counts, strict=True)))
    named = {"benchmark": "all", "batch": None, "progress": None}
    rows.append(named | dict(zip(_COUNTS, total.tolist(), strict=True)))
    print(text_table(rows, whole=True))
    print(f"{len(list(results.glob(_LOGS)))} logs were read")
    for quantity, found in scatter.items():
        median, high = np.quantile(found, [0.5, 0.95])
        print(f"{quantity}: runs of a system scatter by {median:.2%} (median), {high:.2%} (95 %)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
