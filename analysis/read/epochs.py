"""Place rows on an axis: steps, which go on through the epochs, else images, else epochs."""

import numpy as np

from analysis.read.columns import LARGEST_STEP, Rows
from analysis.stats.intervals import Floats

# A bar cuts its time to whole seconds: its end is up to twice as much later than it says.
CUT_S = 0.5
# A bar that is drawn last at this share of its length has ended.
ENDED = 0.98
MOST_EPOCHS = 1e9
# More drawings that are behind others are of other processes.
MOST_BEHIND = 5
_OF_STEPS = frozenset(["step_s", "steps_per_s"])


def on_axis(rows: Rows, *, step_axis: str = "step") -> tuple[Rows, str, dict[str, str]] | None:
    """Return rows with a `step`, what it counts, and doubts; None if they have no axis.

    `step_axis` is what a `step` counts that the rows have.
    """
    for column, axis in (("step", step_axis), ("images", "sample"), ("epoch", "epoch")):
        if column not in rows:
            continue
        rows = rows.take((rows[column] >= 0) & (rows[column] < LARGEST_STEP))
        if axis == "epoch":
            if (np.mod(rows["epoch"], 1) > 0).sum() > len(rows) / 2:
                doubt = "records are counted: those of another log may be other shares of epochs"
                rows = rows.replace(step=np.arange(1.0, len(rows) + 1))
                return rows, "unit", {"step": doubt, "loss": doubt}
            return rows.replace(step=np.ceil(rows["epoch"])), "epoch", {}
        rows = rows.replace(step=(np.round if axis == "sample" else np.ceil)(rows[column]))
        if axis == "sample":
            rows = rows.replace(images=rows[column])
        if axis not in ("step", "unit"):
            # Those of a step, which is not the axis.
            rows = Rows({n: c for n, c in rows.columns.items() if n not in _OF_STEPS})
        if "epoch" in rows or "bar_s" in rows:
            rows, uncertain = through_epochs(rows)
            return rows, axis, uncertain
        return rows, axis, {}
    return None


def through_epochs(rows: Rows) -> tuple[Rows, dict[str, str]]:
    """Return rows whose steps go on through the epochs, and a doubt if a length is not certain.

    Steps are counted within an epoch if they fall, or end, when the epoch rises. An epoch is as
    long as its `of`; without one, as its last step, and as the first step to follow if it counts
    from 0. Without an epoch, a bar that begins again after its end is the next epoch's.
    """
    rows, uncertain = _through_bars(rows)
    step, epoch, of = rows["step"], rows["epoch"], rows["of"]
    epoch = np.where(epoch < MOST_EPOCHS, epoch, np.nan)
    known = np.flatnonzero(~np.isnan(epoch))
    if len(known) < 2 or not _is_within(step[known], epoch[known], of[known]):
        return rows, uncertain
    first = min(float(epoch[known].min()), 1.0)
    every, is_certain = _lengths(step[known], epoch[known], of[known])
    number, before = np.nan_to_num(epoch, nan=first), np.zeros(len(rows))
    # Another session may print another length of its epochs.
    rises, falls = np.diff(epoch[known]), np.diff(step[known]) < 0
    begins = known[np.flatnonzero((rises < 0) | ((rises == 0) & falls)) + 1]
    for session in np.split(np.arange(len(rows)), begins):
        own = session[~np.isnan(epoch[session])]
        is_printed = not np.isnan(of[own]).all()
        lengths = _lengths(step[own], epoch[own], of[own])[0] if is_printed else every
        before[session] = _steps_before(number[session], first, {**every, **lengths}, lengths)
    step = step + np.floor(before)
    if not is_certain:
        uncertain["step"] = "the length of an epoch is not known: it counts to its last line"
    rows = rows.replace(step=step)
    return rows.take(rows["step"] < LARGEST_STEP), uncertain


def _is_within(step: Floats, epoch: Floats, of: Floats) -> bool:
    """Whether steps count within epochs: they fall, or end, at most rises of the epoch.

    If only some steps are printed, they fall at some rises, and hardly anywhere else.
    """
    rises, falls = np.diff(epoch) > 0, np.diff(step) < 0
    if not rises.any():
        return False
    # A bar may be drawn twice at the step at which an epoch is named.
    is_drawn_twice = (step < of)[:-1] & (np.diff(step) > 0).any()
    has_ended = falls | ((np.diff(step) == 0) & ~is_drawn_twice)
    if has_ended[rises].mean() >= 0.5:
        return True
    again = (falls & rises).sum()
    fewest = 1 if (step <= of).all() else 2
    return bool(again >= fewest and again >= 0.8 * (falls & ~(np.diff(epoch) < 0)).sum())


def _steps_before(
    number: Floats, first: float, lengths: dict[float, float], own: dict[float, float]
) -> Floats:
    """Return the steps in the epochs before each row's [n]."""
    middle = float(np.median([*own.values()]))
    named = np.array(sorted(lengths))
    ends = np.concatenate([[0.0], np.cumsum([lengths[one] for one in named.tolist()])])
    at = np.searchsorted(named, number)
    # Epochs that are not in the log are as long as the others.
    before: Floats = ends[at] + middle * np.maximum(number - first - at, 0)
    return before


def _lengths(step: Floats, epoch: Floats, of: Floats) -> tuple[dict[float, float], bool]:
    """Return the length of each epoch, and whether it is printed or each of its steps is."""
    found, is_certain = {}, True
    counts_from = float(step.min())
    gaps = np.diff(step)[(np.diff(step) > 0) & (np.diff(epoch) == 0)]
    spacing = float(np.median(gaps)) if len(gaps) else max(float(step.max()), 1.0)
    last = float(step.max())
    for number in np.unique(epoch):
        mine = epoch == number
        printed = of[mine][~np.isnan(of[mine])]
        if len(printed):
            found[float(number)] = max(float(printed.max()), float(step[mine].max()))
            continue
        # If not every step is printed, the one that was printed latest in an epoch is nearest.
        end = float(step[mine].max()) if spacing == 1 else last
        found[float(number)] = end + (spacing if counts_from == 0 else 0.0)
        is_certain &= spacing == 1
    return found, is_certain


def _through_bars(rows: Rows) -> tuple[Rows, dict[str, str]]:
    """Let the clock of bars go on, and their steps if no epoch is named, where one begins again.

    A bar that begins again before its end is another attempt's, and its clock goes on so that it
    is not taken for a bar drawn twice. One that falls behind while its clock goes on is of another
    process, and is left out.
    """
    if "bar_s" not in rows:
        return rows, {}
    step, epoch, bar_s = rows["step"], rows["epoch"], rows["bar_s"]
    total = rows["of"]
    before, passed, bars = np.zeros(len(rows)), np.zeros(len(rows)), np.zeros(len(rows))
    is_next, has_ended = np.diff(epoch) > 0, (step >= ENDED * total)[:-1]
    again = (np.diff(step) < 0) & ((bar_s[1:] <= bar_s[:-1] / 2) | is_next)
    # If little but the ends is drawn, each is another bar's.
    is_tie = (np.diff(step) == 0) & (np.diff(bar_s) <= 0)
    again |= is_tie & has_ended & (2 * has_ended.sum() > len(rows))
    for row in (np.flatnonzero(again) + 1).tolist():
        passed[row] = bar_s[row - 1] + CUT_S
        bars[row] = 1
        if np.isnan(epoch[row]) and has_ended[row - 1]:
            before[row] = max(total[row - 1], step[row - 1])
        elif not is_next[row - 1]:
            passed[row] += max(10.0 - bar_s[row - 1], 0.0)
    number = np.cumsum(bars)
    apart = number * (step.max(initial=0.0) + 1)
    is_behind = step < np.maximum.accumulate(step + apart) - apart
    if bars.any():
        step = step + np.cumsum(before)
        bar_s = bar_s + np.cumsum(passed)
        rows = rows.replace(step=step, bar_s=np.maximum.accumulate(bar_s), bars=number)
    why = "may be of any of the processes that draw bars at once"
    uncertain = {"loss": why, "bar": why} if is_behind.sum() > MOST_BEHIND else {}
    return rows.take(~is_behind), uncertain


def regularity(step: Floats) -> float:
    """Return the share of steps that rise by the commonest rise, of those that change."""
    rises = np.diff(step[np.isfinite(step)])
    rises = rises[rises != 0]
    if not len(rises):
        return 1.0
    up = rises[rises > 0]
    if not len(up):
        return 0.0
    _, counts = np.unique(up, return_counts=True)
    return float(counts.max() / len(rises))
