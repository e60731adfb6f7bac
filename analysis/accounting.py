"""Where the time of a run went, from its first start to its last record."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.read.log import RunLog

PARTS = (
    "queue", "setup", "train", "data", "save", "sample", "eval", "lost", "between", "other",
)  # fmt: skip
COUNTED = ("setup_s", "train_s", "data_s", "save_s", "sample_s", "eval_s")


@dataclass(frozen=True, kw_only=True)
class Accounting:
    """Seconds by purpose; `wall_s` leaves out the queue. `train` is without waits for data.

    `lost` is training that a later attempt did again, `between` the gaps between attempts,
    `other` what no clock of the run was running for.
    """

    wall_s: float
    seconds: Mapping[str, float]
    steps: int

    @property
    def steps_per_s(self) -> float | None:
        """The end-to-end rate: steps that stand, over all the time but the queue."""
        return self.steps / self.wall_s if self.wall_s > 0 and self.steps > 0 else None


def account(log: RunLog) -> Accounting | None:
    """The accounting of a run; None where its records do not tell when it began and ended."""
    rows = _rows(log)
    starts = {e["attempt"]: e for e in log.events if e.get("event") == "started"}
    moments = [row["time"] for row in rows] + [event["time"] for event in log.events]
    if not rows or not starts:
        return None
    seconds = dict.fromkeys(PARTS, 0.0)
    queued = [event["time"] for event in log.events if event.get("event") == "queued"]
    began = min(event["time"] for event in starts.values())
    if queued:
        seconds["queue"] = max(0.0, began - queued[0])
    ends: float | None = None
    for number in sorted(starts):
        start, inside = starts[number], [row for row in rows if row["attempt"] == number]
        if ends is not None:
            seconds["between"] += max(0.0, start["time"] - ends)
        base = _before(rows, number, int(start.get("step", 0)))
        for name in COUNTED:
            seconds[name.removesuffix("_s")] += _grown(inside, name, base.get(name, 0.0))
        ends = max(
            [start["time"], *(row["time"] for row in inside)]
            + [event["time"] for event in log.events if event["attempt"] == number]
        )
        following = starts.get(number + 1)
        if following is not None:
            lost = [row for row in inside if row["step"] > int(following.get("step", 0))]
            kept = _before(rows, number + 1, int(following.get("step", 0)))
            seconds["lost"] += _grown(lost, "train_s", kept.get("train_s", 0.0))
    seconds["train"] -= seconds["data"] + seconds["lost"]
    wall = max(moments) - began
    said = sum(value for name, value in seconds.items() if name not in ("queue", "other"))
    seconds["other"] = max(0.0, wall - said)
    return Accounting(wall_s=wall, seconds=seconds, steps=int(log.step[-1]) if len(log) else 0)


def _rows(log: RunLog) -> list[dict[str, Any]]:
    """Every step recorded, those that were done again as well."""
    names = [name for name in COUNTED if name in log.values]
    standing = [
        {"attempt": int(log.attempt[i]), "step": int(log.step[i]), "time": log.column("time")[i]}
        | {name: log.values[name][i] for name in names if not np.isnan(log.values[name][i])}
        for i in range(len(log))
    ]
    return [*standing, *(dict(record) for record in log.lost)]


def _before(rows: Iterable[Mapping[str, Any]], attempt: int, step: int) -> Mapping[str, Any]:
    """The newest row of earlier attempts up to a step: what the clocks stood at on a resume."""
    older = [row for row in rows if row["attempt"] < attempt and row["step"] <= step]
    return max(older, key=lambda row: row["step"], default={})


def _grown(rows: Iterable[Mapping[str, Any]], name: str, base: float) -> float:
    shown = [row[name] for row in rows if name in row]
    return max(0.0, max(shown) - base) if shown else 0.0
