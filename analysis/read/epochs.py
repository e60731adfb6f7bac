"""One rule for steps that are counted anew in every epoch, in every kind of log."""

import numpy as np

from analysis.read.columns import LARGEST_STEP, Rows
from analysis.stats.intervals import Floats

# A bar cuts its time to whole seconds: its end is up to twice as much later than it says.
CUT_S = 0.5
# A bar that is drawn last at this share of its length has ended.
ENDED = 0.98
MOST_EPOCHS = 1e9


def through_epochs(rows: Rows) -> tuple[Rows, str | None]:
    """Return rows whose steps go on through the epochs, and a remark if a length is not certain.

    Steps are counted within an epoch if they fall, or end, when the epoch rises. An epoch is as
    long as its `of`; without one, as its last step, and as the first step to follow if it counts
    from 0. Without an epoch, a bar that begins again after its end is the next epoch's.
    """
    rows = _through_bars(rows)
    step, epoch, of = rows["step"], rows["epoch"], rows["of"]
    epoch = np.where(epoch < MOST_EPOCHS, epoch, np.nan)
    if "group" in rows:
        of = rows["group"]
    known = np.flatnonzero(~np.isnan(epoch))
    if len(known) < 2 or len(np.unique(epoch[known])) < 2:
        return rows, None
    rises = np.flatnonzero(np.diff(epoch[known]) > 0) + 1
    falls = step[known][rises] <= step[known][rises - 1]
    if not len(rises) or falls.mean() < 0.5:
        return rows, None
    lengths, is_certain = _lengths(step[known], epoch[known], of[known])
    first = _first(epoch[known], rows["epochs"][known], step[known], of[known])
    middle = float(np.median([*lengths.values()]))
    named = np.array(sorted(lengths))
    ends = np.concatenate([[0.0], np.cumsum([lengths[number] for number in named.tolist()])])
    at = np.searchsorted(named, np.nan_to_num(epoch, nan=first))
    # Epochs that are not in the log are as long as the others.
    before = ends[at] + middle * np.maximum(np.nan_to_num(epoch, nan=first) - first - at, 0)
    remark = (
        None if is_certain else "the length of an epoch is not known: it counts to its last line"
    )
    rows = rows.replace(step=step + np.floor(before))
    return rows.take(rows["step"] < LARGEST_STEP), remark


def _first(epoch: Floats, epochs: Floats, step: Floats, of: Floats) -> float:
    """Return the first epoch: 0 if the log has it, or if the one before the last of `epochs` ended.

    The latter is that of a log that begins with a resume.
    """
    if epoch.min() == 0:
        return 0.0
    is_last = epoch == epoch.max()
    has_ended = bool((step[is_last] >= 0.97 * of[is_last]).any())
    total = epochs[~np.isnan(epochs)]
    return 0.0 if len(total) and epoch.max() == total.max() - 1 and has_ended else 1.0


def _lengths(step: Floats, epoch: Floats, of: Floats) -> tuple[dict[float, float], bool]:
    """Return the length of each epoch, and whether it is printed or each of its steps is."""
    found, is_certain = {}, True
    counts_from = float(step.min())
    gaps = np.diff(step)[(np.diff(step) > 0) & (np.diff(epoch) == 0)]
    spacing = float(np.median(gaps)) if len(gaps) else 1.0
    for number in np.unique(epoch):
        mine = epoch == number
        printed = of[mine][~np.isnan(of[mine])]
        if len(printed):
            found[float(number)] = float(printed.max())
            continue
        found[float(number)] = float(step[mine].max()) + (spacing if counts_from == 0 else 0.0)
        is_certain &= spacing == 1
    return found, is_certain


def _through_bars(rows: Rows) -> Rows:
    """Let the clock of bars go on, and their steps if no epoch is named, where one begins again.

    A bar that begins again before its end is another attempt's, and its clock goes on so that it
    is not taken for a bar drawn twice.
    """
    if "bar_s" not in rows:
        return rows
    step, epoch, bar_s = rows["step"], rows["epoch"], rows["bar_s"]
    total = rows["group"] if "group" in rows else rows["of"]
    before, passed, bars = np.zeros(len(rows)), np.zeros(len(rows)), np.zeros(len(rows))
    again = (np.diff(step) < 0) | ((np.diff(step) == 0) & (np.diff(bar_s) <= 0))
    again |= np.diff(epoch) > 0
    for row in (np.flatnonzero(again) + 1).tolist():
        is_next = epoch[row] > epoch[row - 1]
        if not is_next and step[row] > total[row - 1] / 2 and step[row] < step[row - 1]:
            continue
        has_ended = step[row - 1] >= ENDED * total[row - 1]
        passed[row] = bar_s[row - 1] + CUT_S
        bars[row] = 1
        if np.isnan(epoch[row]) and has_ended:
            before[row] = total[row - 1]
        elif not is_next:
            passed[row] += max(10.0 - bar_s[row - 1], 0.0)
    if not bars.any():
        return rows
    step = step + np.cumsum(before)
    return rows.replace(step=step, bar_s=bar_s + np.cumsum(passed), bars=np.cumsum(bars))
