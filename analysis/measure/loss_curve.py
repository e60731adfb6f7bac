"""Loss curves of runs over an axis, and what makes two of them different quantities."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from analysis.measure.differences import differences
from analysis.measure.time_breakdown import start_time
from analysis.read.machine import ranks
from analysis.read.run_log import RunLog
from analysis.read.vocabulary import key_of
from analysis.stats.intervals import Floats
from configs.errors import Unreadable
from runs.records import is_number

AXES = {
    "step": "optimizer steps",
    "images": "images seen",
    "train_s": "seconds of training steps",
    "wall": "seconds since the first start",
    "gpu_hours": "hours of training steps times ranks",
}
# Those that the machine affects.
TIMED = ("train_s", "wall", "gpu_hours")
# A range of several runs that begins after this share of it leaves something out.
LATE = 0.1
# Kinds of runs without a training to compare.
NO_TRAINING = ("encode", "gns", "infer", "sample")
# What a loss or an evaluation is, if a key of such a kind differs.
_OTHER = {
    "data": "of other data", "objective": "of another objective", "term": "of another objective",
    "evaluation": "measured otherwise", "sampling": "measured otherwise",
}  # fmt: skip
# Facts in which comparable distances may differ: a run's own training data has its own path.
_FREE = ("seed", "reference")
_HELD_OUT = re.compile(r"(val|valid|validation|eval|test|held_out)[_/ -]?loss")

# Words in the names of evaluations of which more, or less, is better.
_HIGHER = frozenset(
    ["accuracy", "acc", "acc1", "top1", "top5", "recognised", "precision", "recall", "f1", "auc",
     "map", "iou", "miou", "dice", "psnr", "ssim", "clip", "bleu", "rouge", "gain", "reward",
     "inception"]
)  # fmt: skip
_LOWER = frozenset(
    ["loss", "error", "fid", "kid", "lpips", "perplexity", "ppl", "bpd", "mse", "rmse", "mae",
     "nll", "wer", "cer"]
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LossCurve:
    """The loss, or evaluation `of`, of a run [n] over an ascending axis `x` [n].

    The log of an interpolated loss may be off by `blur`.
    """

    log: RunLog
    x: Floats
    loss: Floats
    of: str = "loss"
    blur: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Range:
    """The part of an axis that several runs have in common."""

    by: str
    low: float
    high: float

    @property
    def remark(self) -> str:
        """Its end in words, and its begin if that is late."""
        digits = ".0f" if self.by in ("step", "images") else ".6g"
        begin, end = f"{self.low:{digits}}", f"{self.high:{digits}}"
        is_late = self.low > LATE * self.high
        if self.by == "step":
            words = f"from step {begin} to {end}" if is_late else f"up to step {end}"
        else:
            unit = AXES[self.by] if self.by in TIMED else self.by
            words = f"from {begin} to {end} {unit}" if is_late else f"up to {end} {unit}"
        return f"{words}, which all have"


def loss_curve(log: RunLog, *, by: str, of: str = "loss") -> LossCurve:
    """Return a run's training loss over an axis, or its evaluation `of`, or raise `Unreadable`."""
    if of != "loss":
        return _evaluated(log, by, of)
    x = axis_values(log, by)
    loss = log.column("loss")
    kept = ~np.isnan(x) & ~np.isnan(loss)
    if not kept.any():
        missing = "loss" if np.isnan(loss).all() else f"{by} beside its loss"
        why = log.uncertain.get("time") if by == "wall" else None
        raise Unreadable(f"{log.path}: {why or f'records no {missing}'}")
    order = np.flatnonzero(kept)
    order = order[np.concatenate([[True], np.diff(np.maximum.accumulate(x[order])) > 0])]
    return LossCurve(log=log, x=x[order], loss=loss[order])


def _evaluated(log: RunLog, by: str, of: str) -> LossCurve:
    """Return an evaluation's curve; after a resume the newest value of a step counts."""
    latest = {
        int(e["step"]): e
        for e in log.evaluations
        if all(type(e.get(key)) in (int, float) for key in (of, "step"))
    }
    if not latest:
        known = sorted({name for record in log.evaluations for name in record})
        raise Unreadable(f"{log.path}: evaluates no {of}; it has {', '.join(known) or 'none'}")
    # Else evaluations take their place on the axis from the training record of the same step.
    axis = dict(zip(log.step.tolist(), axis_values(log, by).tolist(), strict=True))
    axis |= {at: one[by] for at, one in latest.items() if by == "images" and is_number(one.get(by))}
    step = np.array(sorted(latest), dtype=float)
    x = np.array([axis.get(int(at), np.nan) for at in step]) if by != "step" else step
    loss = np.array([latest[int(at)][of] for at in step], dtype=float)
    kept = ~np.isnan(x)
    if not kept.any():
        raise Unreadable(f"{log.path}: records no {by} at the steps of its {of}")
    return LossCurve(log=log, x=x[kept], loss=loss[kept], of=of)


def held_out_losses(logs: Iterable[RunLog]) -> list[str]:
    """Return the losses of images outside training that runs evaluate, ours first."""
    names = {name for log in logs for record in log.evaluations for name in record}
    found = filter(_HELD_OUT.fullmatch, names)
    return sorted(found, key=lambda name: (name != "validation_loss", name))


def sense_of(of: str) -> Literal["higher", "lower", "unknown"]:
    """Return whether more or less of an evaluation is better, by its name."""
    words = {*key_of(of).split()}
    if words & _HIGHER:
        return "higher"
    return "lower" if words & _LOWER else "unknown"


def not_finite_from(log: RunLog) -> int | None:
    """Return the step from which on a run's loss is mostly NaN or infinite, None if it is not."""
    finite = log.step[~np.isnan(log.column("loss"))]
    lasting = [
        int(event.get("step", 0))
        for event in log.events
        if event.get("reason") == "nan"
        and event.get("rows", 1) > (finite > event.get("step", 0)).sum()
    ]
    return max(lasting, default=None)


def axis_of(logs: Iterable[RunLog]) -> str:
    """Return what runs are aligned on: images if all of them record these, else steps."""
    return "images" if all((log.column("images") > 0).any() for log in logs) else "step"


def axis_values(log: RunLog, by: str) -> Floats:
    """Return the values [n] of one of `AXES` at the rows of a log, NaN if they are unknown."""
    if by == "step":
        return log.step.astype(float)
    if by == "wall" and "time" in log.uncertain:
        return np.full(len(log), np.nan)
    if by == "wall":
        time = log.column("time" if "time" in log.values else "elapsed_s")
        began = start_time(log)
        return time - (np.nan if began is None else began)
    if by == "gpu_hours":
        return _rank_hours(log)
    return log.column(by)


def _rank_hours(log: RunLog) -> Floats:
    """Return the hours of training steps times the ranks of the attempt that did them [n]."""
    stays = (log.stays.get(number) for number in log.attempt.tolist())
    count = np.array([(stay and stay.ranks) or ranks(log.facts) or np.nan for stay in stays])
    train_s = log.column("train_s")
    hours, known = np.full(len(log), np.nan), ~np.isnan(train_s)
    hours[known] = np.cumsum(np.diff(train_s[known], prepend=0.0) * count[known]) / 3600
    return hours


def why_unlike(a: RunLog, b: RunLog, of: str) -> str | None:
    """Return why `of` is another quantity in two runs, None if it is comparable.

    Losses of other objectives, other data, or latents of another VAE are not comparable. The terms
    that training adds to its loss are not in an evaluation. Our distances of samples have facts of
    their own.
    """
    is_loss = "loss" in of
    vaes = [log.facts.get("vae_sha256") for log in (a, b)]  # an older run does not say it
    if is_loss and None not in vaes and vaes[0] != vaes[1]:
        return f"their {of} is of latents of another VAE"
    kinds = {"data", "term" if of == "loss" else "evaluation"}
    kinds |= {"objective"} if is_loss else {"sampling"}
    for item in differences(a, b):
        if item.kind in kinds and (is_loss or item.is_foreign):
            is_other = "may be" if item.is_foreign else "is"
            return f"their {of} {is_other} {_OTHER[item.kind]} ({item})"
    return None


def why_other_schedule(a: RunLog, b: RunLog) -> str | None:
    """Return why two runs that have seen as many images are at other places of their schedules."""
    configs = [log.config or {} for log in (a, b)]
    images = {one.get("train.steps", 0) * one.get("train.global_batch", 1) for one in configs}
    for item in differences(a, b):
        if item.kind == "length" and (item.is_foreign or len(images) > 1):
            return f"their schedules end at other steps ({item})"
    return None


def why_other(logs: Sequence[RunLog], of: str) -> str | None:
    """Return in which facts distances `of` samples were measured unlike, None if in none.

    The facts are those at the last step that all have, of the newest distance there.
    """
    each = [
        {one["step"]: one for one in log.evaluations if of in one and "fid_facts" in one}
        for log in logs
    ]
    known = [newest for newest in each if newest]
    shared = set[int]().union(*known).intersection(*known)
    unlike = _unlike([_facts(newest[max(shared or newest)], of) for newest in known])
    return f"other {', '.join(unlike)}" if unlike and "loss" not in of else None


def _facts(record: Mapping[str, Any], of: str) -> Mapping[str, Any]:
    """Return how a distance was measured; the bias of `fid` depends on the number of samples."""
    samples = {"number of samples": record.get("fid_samples")} if of == "fid" else {}
    return record["fid_facts"] | samples


def _unlike(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the facts that differ, numbers by more than rounding errors."""
    facts = [
        {name: f"{fact:.4g}" if isinstance(fact, float) else fact for name, fact in facts.items()}
        for facts in found
    ]
    names = dict.fromkeys(name for one in facts for name in one if name not in _FREE)
    return [name for name in names if any(one.get(name) != facts[0].get(name) for one in facts)]
