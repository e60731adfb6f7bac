"""The state of runs for people: live ones first, those that are done as a number, in one table."""

import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from configs.table import Row, text_table
from launch.slurm.history import clock, in_words
from launch.status.state import GROUPS, RunStatus, status_row
from runs.folder import is_run
from runs.study_folder import is_study_folder

# The columns to leave out first on a narrow terminal.
DROP = ("nodes", "attempts", "steps_per_s", "job", "left", "eta")

Pair = tuple[RunStatus, Row]


def table_lines(
    runs: Sequence[RunStatus], paths: Sequence[Path], *, whole: bool = False
) -> list[str]:
    """Return the folder and the time, and a row per run that is not done.

    `whole` shows runs that are done, and every column.
    """
    base = paths[0].parent if is_run(paths[0]) else paths[0]
    pairs = sorted(((one, status_row(one)) for one in runs), key=_place)
    folds = not whole and not all(map(is_run, paths))
    folded = Counter(one.word for one, _ in pairs if folds and one.group == "over")
    shown = [pair for pair in pairs if not (folds and pair[0].group == "over")]
    lines = [f"{base}  {time.strftime('%H:%M:%S')}"]
    if shown:
        rows = [_display(one, row, base) for one, row in shown]
        lines += text_table(rows, drop=DROP, whole=whole).splitlines()
    if folded:
        lines.append(f"{', '.join(_counts(folded))}; --all shows them")
    return lines if runs else [f"no run in {base}"]


def summary_lines(runs: Sequence[RunStatus], paths: Sequence[Path]) -> list[str]:
    """Return a line per path: a run's state, or a folder's, with the report of an ended study."""
    lines = []
    for path in paths:
        here = path.resolve()
        inside = [
            one for one in runs if here in (one.run.path.resolve(), *one.run.path.resolve().parents)
        ]
        states = [one.word for one in inside]
        counts = ", ".join(_counts(Counter(states)))
        lines.append(f"{path}: {states[0] if is_run(path) else f'{len(states)} runs: {counts}'}")
        report = path / "report.html"
        has_ended = all(one.group in ("idle", "over") or one.state.is_failed for one in inside)
        if has_ended and report.exists():
            lines.append(f"report: {report}")
    return lines


def _counts(states: Counter[str]) -> list[str]:
    return [f"{count} {state}" for state, count in states.most_common()]


def _place(pair: Pair) -> tuple[int, float]:
    """Return the place of a run in the table: by state, the newest first."""
    one = pair[0]
    return [*GROUPS.values()].index(one.group), -(one.state.since or 0.0)


def _display(one: RunStatus, row: Row, base: Path) -> dict[str, Any]:
    path, folder = one.run.path, base / "cells" if is_study_folder(base) else base
    inside = folder.resolve() in path.resolve().parents
    return {
        "run": str(path.resolve().relative_to(folder.resolve())) if inside else str(path),
        "state": row["state"],
        "steps": row["steps"],
        "eta": None if row["eta_s"] is None else timedelta(seconds=row["eta_s"]),
        "left": None if row["left_s"] is None else timedelta(seconds=row["left_s"]),
        "steps_per_s": row["steps_per_s"],
        "job": row["job"],
        "attempts": row["attempts"] or None,
        "nodes": row["nodes"] or None,
        "why": _why(one, row),
    }


def _why(one: RunStatus, row: Row) -> str | None:
    """Return the reason of a state, and when a waiting job may start."""
    if one.group != "waiting" or one.job is None:
        return row["why"]
    reason, start = str(row["why"] or ""), row["start"]
    if start is not None:
        return f"starts about {clock(start)}"
    return in_words(reason)
