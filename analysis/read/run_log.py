"""The neutral form of one run's log: rows of numbers by step, each with the line it came from."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from analysis.stats.intervals import Floats
from runs.records import Record
from runs.state.fold import fold
from runs.state.run_state import RunState

Ints = NDArray[np.int64]
# Cumulative clocks of our records: all time of an attempt is on one of them, `data_s` on `train_s`.
CLOCKED = (
    "setup_s", "load_s", "quantise_s", "cache_s", "train_s", "data_s", "save_s", "sample_s",
    "eval_s", "profile_s",
)  # fmt: skip


Function = TypeVar("Function", bound=Callable[..., Any])


def kept_with_log(function: Function) -> Function:
    """Keep the results of a function of a log with the log: many tables ask for the same ones."""

    @wraps(function)
    def kept(log: "RunLog", **options: Any) -> Any:
        found = vars(log).setdefault("_kept", {})
        place = (function.__qualname__, *options.items())
        if place not in found:
            found[place] = function(log, **options)
        return found[place]

    return cast(Function, kept)


@dataclass(frozen=True, kw_only=True)
class Stay:
    """The place and time of one attempt's job; None for what is not recorded."""

    nodes: frozenset[str]
    ranks: int | None
    gpu: str | None
    began: float | None
    ended: float | None


@dataclass(frozen=True, kw_only=True)
class RunLog:
    """One run: `n` rows in the order of steps, NaN for an absent value.

    `values` holds `loss`, `images`, `time` (seconds since 1970) and cumulative seconds by clock
    (`train_s`, `data_s`, `save_s`, ...). `axis` is what a step is: `step`, `sample`, `epoch`,
    or `unit` if the log does not say. `config` is flat (dotted keys), None if it is
    not known. `facts` describe the machine of the last attempt. `events` and `lost` are records;
    `lost` are steps that a resume repeated. `evaluations` are records with a step, a time and
    metrics. `superseded` are attempts on another machine than the last one, or with other keys
    that affect the clock: they do not count for its rate. `changed` are the keys and facts that
    differed between attempts whose steps count, with their values. `stays` are where and when each
    attempt ran, if the run records it. `turns` names the round of each attempt in an
    interleaved study: runs that share a round took turns on the same nodes. `source` is the file of
    the lines, if it is not the usual one of the format. `uncertain` names quantities (`step`,
    `loss`, `time`, `printed`) that have two readings or no unit, with the reason: they are shown
    and have no interval and no verdict. `lines_read` counts the lines of a text log that were read,
    and all of them.
    """

    name: str
    path: Path
    format: str
    step: Ints
    attempt: Ints
    line: Ints
    values: Mapping[str, Floats]
    config: Mapping[str, Any] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    events: tuple[Mapping[str, Any], ...] = ()
    lost: tuple[Mapping[str, Any], ...] = ()
    evaluations: tuple[Mapping[str, Any], ...] = ()
    stays: Mapping[int, Stay] = field(default_factory=dict)
    turns: Mapping[int, str] = field(default_factory=dict)
    attempts: int = 1
    axis: str = "step"
    superseded: frozenset[int] = frozenset()
    changed: Mapping[str, str] = field(default_factory=dict)
    source: Path | None = None
    uncertain: Mapping[str, str] = field(default_factory=dict)
    lines_read: tuple[int, int] | None = None
    remarks: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.step)

    def column(self, name: str) -> Floats:
        """Return the values of one name [n], all NaN if the log has none."""
        found = self.values.get(name)
        return np.full(len(self), np.nan) if found is None else found

    def last(self, name: str) -> float | None:
        """Return the newest value of one name."""
        present = self.column(name)[~np.isnan(self.column(name))]
        return float(present[-1]) if len(present) else None

    @property
    def global_batch(self) -> int | None:
        """The global batch that the config or the log itself names."""
        printed = self.facts.get("global_batch_size", self.facts.get("batch_size"))
        batch = (self.config or {}).get("train.global_batch", printed)
        return batch if type(batch) is int and batch > 0 else None

    @property
    def state(self) -> RunState:
        """The state of the run by its events; `new` if the log has none."""
        return fold(cast(Iterable[Record], self.events))


def not_finite(step: Ints, line: Ints, loss: Floats) -> tuple[dict[str, Any], ...]:
    """Return the event of losses [n] that are infinite, as NaN is read; none if all are finite.

    It is where most losses are so from there on, else at the longest stretch, `in_a_row`.
    """
    printed = np.flatnonzero(~np.isnan(loss))
    odd = np.isinf(loss[printed])
    begins, ends = np.flatnonzero(np.diff(odd, prepend=False, append=False)).reshape(-1, 2).T
    if not len(begins):
        return ()
    rows, left = np.cumsum(odd[::-1])[::-1][begins], len(odd) - begins
    lasts = 2 * rows > left
    worst = int((lasts if lasts.any() else ends - begins).argmax())
    row = int(printed[begins[worst]])
    event = {"event": "loss not finite", "reason": "nan", "attempt": 1}
    counts = {"rows": int(rows[worst]), "in_a_row": int(ends[worst] - begins[worst])}
    return (event | counts | {"step": int(step[row]), "line": int(line[row])},)
