"""Tell by the noise of losses whether they are running means, or two runs of one seed."""

import math

import numpy as np

from analysis.stats.intervals import Floats, decimal_grid
from analysis.stats.mean import lag_one, trend

# Losses are a running mean if of so many late ones or more those side by side are this alike, their
# steps are neither a noise that turns back (-1/2) nor a smooth curve (1), and if they hold no more
# independent values than so many.
FEWEST_LATE, ALIKE, AVERAGED, MOST_AVERAGES = 20, 0.5, (-0.25, 0.5), 18.0
# Half of a shorter log holds more of its curve.
LONG_HALF = 50
# Second differences of independent noise have -2/3, of a running mean -1/2.
TURNS_BACK = -0.58
# A smaller scatter is rounding.
ROUNDING = 1e-6
# Runs of one seed differ by less at first, and by half as much over so many records as later; or
# by little, and by a tiny share of the noise of a record, throughout.
AT_FIRST, BEGINS, EQUAL, EQUAL_NOISE = 1e-4, 3, 2e-4, 0.02
# In fewer records steps of the learning rate pass for noise.
FEWEST_NOISY = 30
# Digits that are a larger share of the noise tell no seeds apart.
SAME_NOISE = 0.2


def is_running_mean(losses: Floats) -> bool:
    """Whether losses [n] are a running mean over a large share of them.

    One that begins at its first value keeps the noise of that for as long.
    """
    late = np.log(losses[len(losses) // 2 :])
    if len(late) < FEWEST_LATE:
        return False
    noise = late - trend(late, terms=2 if len(late) >= LONG_HALF else 3)
    alike, (least, most) = lag_one(noise), AVERAGED
    if np.ptp(noise) < ROUNDING or alike < ALIKE or len(late) * (1 - alike) > MOST_AVERAGES:
        return False
    # In second differences no curve is left, but independent noise that turns back more.
    turns = np.diff(np.log(losses[len(losses) // 8 :]), n=2)
    return least < lag_one(np.diff(noise)) < most and lag_one(turns) > TURNS_BACK


def begin_as_one(a: Floats, b: Floats) -> bool:
    """Whether losses [n] of two runs are equal, or begin as those of one seed do.

    On GPUs one seed drifts apart later. Other seeds differ from the first record on.
    """
    if np.array_equal(a, b):
        return True
    if len(a) < FEWEST_NOISY or min(a.min(), b.min()) <= 0:
        return False
    digit = max(decimal_grid(losses) or 0.0 for losses in (a, b)) / a[0]
    # Of fourth differences a trend is no part; they are wider than the noise by the root of 70.
    noise = float(np.median(np.abs(np.diff(np.log(a), n=4)))) / math.sqrt(70)
    gap = np.abs(np.log(b / a))
    begin, typical = float(np.median(gap[:BEGINS])), float(np.median(gap))
    drifts = gap[0] <= max(AT_FIRST, 1.01 * digit) and begin <= typical / 2
    return digit <= SAME_NOISE * noise and (drifts or typical <= min(EQUAL, EQUAL_NOISE * noise))
