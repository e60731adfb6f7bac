"""Studies that stop when they are answered, replayed over published runs of many seeds.

    python -m benchmarks.stopping_replay RESULTS

RESULTS is a checkout of MLCommons' training results: `*/results/SYSTEM/BENCHMARK/result_N.txt`,
each one run with its own seed. A study is one benchmark at one global batch, its cells are the
systems, and its quantities the time of a run and its rate. The runs arrive in order of N; a cell
is compared with the first system after each, as `ditbench analysis decide` does, until its verdict
is settled or out of reach. The last columns compare with Student's test of all runs at the end.
"""

import argparse
import json
import math
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import stdtrit

from analysis.stats.intervals import Floats
from analysis.stats.sequential import Planned, interval_so_far, is_in_reach, side
from configs.schema.study import FEWEST_REPEATS
from configs.table import text_table

MARGIN = 0.02
_LINE = re.compile(r":::MLLOG (\{.*\})")
_COUNTS = ("cells", "runs", "made", "verdicts", "at_the_end", "the_same")
_PROGRESS = ("samples_count", "epoch_num", "step_num", "epoch_count")


@dataclass(frozen=True, kw_only=True)
class PublishedRun:
    """One run: its global batch, the logs of its seconds, and of its progress per second."""

    batch: int
    time: float
    rate: float


def read_run(path: Path) -> PublishedRun | None:
    """Return a run, None if it was not completed or does not say how far it went."""
    batch: int | None = None
    start, stop, progress = None, None, None
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
            passed = (metadata[name] for name in _PROGRESS if metadata.get(name))
            progress = next(passed, progress)
    if batch is None or start is None or stop is None or progress is None:
        return None
    seconds = (stop - start) / 1e3
    return PublishedRun(batch=batch, time=math.log(seconds), rate=math.log(progress / seconds))


def read_studies(results: Path) -> dict[tuple[str, int], dict[str, list[PublishedRun]]]:
    """Return by benchmark and batch the systems and their runs, in order of their numbers."""
    studies: dict[tuple[str, int], dict[str, list[PublishedRun]]] = defaultdict(dict)
    for folder in sorted(results.glob("*/results/*/*")):
        numbered = {int(re.sub(r"\D", "", file.stem)): file for file in folder.glob("result_*.txt")}
        runs = [run for _, file in sorted(numbered.items()) if (run := read_run(file))]
        if len(runs) > FEWEST_REPEATS and len({run.batch for run in runs}) == 1:
            system = f"{folder.parts[-4]}/{folder.parts[-2]}"
            studies[folder.name, runs[0].batch][system] = runs
    return {name: systems for name, systems in studies.items() if len(systems) > 1}


def replay(logs: list[Floats]) -> tuple[int, int, int, int]:
    """Return the runs made, the verdicts, those of all runs, and the verdicts that both share.

    `logs` are one quantity of the cells, each of shape [runs]; the first is the base.
    """
    first, *others = logs
    most = max(min(len(first), len(other)) for other in others)
    planned = Planned(contrasts=len(others), least=FEWEST_REPEATS, most=most, margin=MARGIN)
    verdicts: dict[int, int | None] = {}
    made = [FEWEST_REPEATS] * len(logs)
    for n in range(FEWEST_REPEATS, most + 1):
        still_open = [cell for cell in range(len(others)) if cell not in verdicts]
        made[0] = n if still_open else made[0]
        for cell in still_open:
            made[cell + 1] = min(n, len(others[cell]))
        cells = [values[:count] for values, count in zip(logs, made, strict=True)]
        for cell in still_open:
            repeats = min(n, len(others[cell]), len(first))
            pair = np.stack([others[cell][:repeats], first[:repeats]])
            found = interval_so_far(pair, planned, cells=cells)
            where = side(found, margin=MARGIN) if found else None
            is_last = repeats == min(len(others[cell]), len(first))
            if where is not None or is_last or not is_in_reach(pair, planned, cells=cells):
                verdicts[cell] = where
    final = [_at_the_end(other, first, contrasts=len(others)) for other in others]
    shared = sum(where is not None and verdicts[cell] == where for cell, where in enumerate(final))
    settled = sum(where is not None for where in verdicts.values())
    return sum(made), settled, sum(where is not None for where in final), shared


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
    """Print a row per study and quantity, and their sums; return 2 if there is no study."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("results", type=Path)
    studies = read_studies(options.parse_args(arguments).results)
    if not studies:
        print("no two systems with more than three completed runs each", file=sys.stderr)
        return 2
    rows = []
    for quantity in ("time", "rate"):
        total = np.zeros(len(_COUNTS), dtype=int)
        for (benchmark, batch), systems in sorted(studies.items()):
            logs = [np.array([getattr(run, quantity) for run in runs]) for runs in systems.values()]
            counts = (len(logs), sum(map(len, logs)), *replay(logs))
            total += counts
            named = {"benchmark": benchmark, "batch": batch, "quantity": quantity}
            rows.append(named | dict(zip(_COUNTS, counts, strict=True)))
        named = {"benchmark": "all", "batch": None, "quantity": quantity}
        rows.append(named | dict(zip(_COUNTS, total.tolist(), strict=True)))
    print(text_table(rows, whole=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
