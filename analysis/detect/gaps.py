"""Where a run is not one unbroken row of steps: skipped ones, gaps in its records, resumes."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from analysis.detect.finding import Finding
from analysis.read.run_log import RunLog

# A record comes every so many steps, most often; more than that many missing are a gap.
GAP_TIMES = 1.5
FEWEST = 4
_DATABASE = "ai-toolkit database"


def skipped_steps(log: RunLog) -> Iterator[Finding]:
    """Steps of a fine-tuning that ran out of memory and were skipped, as ai-toolkit does."""
    if log.format == _DATABASE:
        rows = _without_loss(log)
        if len(rows):
            detail = f"{len(rows)} steps without a loss: out of memory, most likely, and skipped"
            yield _at(log, int(rows[0]), "skipped", detail)
    if (log.config or {}).get("kind") == "finetune":
        images = np.nan_to_num(log.column("skipped_images"))
        for row in np.flatnonzero(images > 0):
            detail = f"{images[row]:.0f} images: out of memory, most likely, and skipped"
            yield _at(log, int(row), "skipped", detail)


def _without_loss(log: RunLog) -> Any:
    """Rows that tell a learning rate and no loss, where others tell both."""
    loss, rate = np.isnan(log.column("loss")), np.isnan(log.column("lr"))
    return np.flatnonzero(loss & ~rate) if (~loss).any() else np.array([], int)


def gaps(log: RunLog) -> Iterator[Finding]:
    """Steps that were taken, since later ones are there, and that no record tells of."""
    apart = np.diff(log.step)
    if len(apart) < FEWEST:
        return
    usual = float(np.median(apart))
    for row in np.flatnonzero(apart > GAP_TIMES * usual):
        first, last = int(log.step[row]) + 1, int(log.step[row + 1]) - 1
        yield _at(log, int(row) + 1, "gap", f"no record of steps {first} to {last}")


def resumes(log: RunLog) -> Iterator[Finding]:
    """Attempts after the first: where they went on, and what was done again."""
    starts = [event for event in log.events if event.get("event") == "started"]
    for before, start in pairwise(starts):
        number, step = start["attempt"], int(start.get("step", 0))
        told = [event for event in log.events if event["attempt"] < number]
        pause = start["time"] - max(event["time"] for event in told or [before])
        again = sum(r["step"] > step and r["attempt"] < number for r in log.lost)
        redone = f", {again} recorded steps done again" if again else ""
        line = _line_after(log, number)
        detail = f"attempt {number} goes on from step {step} after {pause:.0f} s{redone}"
        yield Finding(kind="resumed", step=step, line=line, detail=detail)


def _line_after(log: RunLog, attempt: int) -> int:
    """The line of the first record of an attempt, else of the last before it."""
    rows = np.flatnonzero(log.attempt >= attempt)
    if len(rows):
        return int(log.line[rows[0]])
    return int(log.line[-1]) if len(log) else 1


def _at(log: RunLog, row: int, kind: str, detail: str) -> Finding:
    return Finding(kind=kind, step=int(log.step[row]), line=int(log.line[row]), detail=detail)
