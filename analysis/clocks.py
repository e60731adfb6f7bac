"""Durations between the records of a run, on one named clock."""

from dataclasses import dataclass

import numpy as np

from analysis.noise import Floats
from analysis.read.log import Ints, RunLog

CLOCKS = {
    "train": "training steps, their waits for data included",
    "compute": "training steps without their waits for data",
    "wall": "everything, but intervals with a save, a sampling or an evaluation",
}
PAUSES = ("save_s", "sample_s", "eval_s")


@dataclass(frozen=True, kw_only=True)
class Intervals:
    """`m` stretches between two records in a row of one attempt, in order.

    `seconds` per step [m], `images` per step [m] (NaN where not recorded), `attempt` [m], and
    `left_out`, how many stretches held a pause or a clock that did not move on.
    """

    clock: str
    seconds: Floats
    images: Floats
    attempt: Ints
    left_out: int


def intervals(log: RunLog, *, clock: str) -> Intervals:
    """The intervals of a run. What stands before an attempt's first record is its warm-up's."""
    reading = _reading(log, clock)
    rows = np.flatnonzero(~np.isnan(reading))
    start, end = rows[:-1], rows[1:]
    same = log.attempt[start] == log.attempt[end]
    start, end = start[same], end[same]
    steps = log.step[end] - log.step[start]
    with np.errstate(divide="ignore", invalid="ignore"):
        seconds = (reading[end] - reading[start]) / steps
        images = (log.column("images")[end] - log.column("images")[start]) / steps
    kept = (steps > 0) & (seconds > 0)
    if clock == "wall":
        for pause in PAUSES:
            spent = np.nan_to_num(log.column(pause))
            kept &= spent[end] == spent[start]
    return Intervals(
        clock=clock,
        seconds=seconds[kept],
        images=images[kept],
        attempt=log.attempt[end][kept],
        left_out=int((~kept).sum()),
    )


def _reading(log: RunLog, clock: str) -> Floats:
    """What the clock showed at each row, in seconds."""
    if clock == "wall":
        return log.column("time")
    train = log.column("train_s")
    return train - np.nan_to_num(log.column("data_s")) if clock == "compute" else train
