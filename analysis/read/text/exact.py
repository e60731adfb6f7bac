"""Decimal fractions of many digits as the nearest doubles, many at once.

A whole number of up to 18 digits over a power of ten is divided as a sum of two doubles (Dekker
1971, "A floating-point technique for extending the available precision", section 4), whose
rounding is that of the true quotient unless this is next to the middle of two doubles.
"""

import numpy as np
from numpy.typing import NDArray

from analysis.read.run_log import Ints
from analysis.stats.intervals import Floats

MOST_DIGITS = 18
# 5 ** 45 has 105 bits: a power up to there is a sum of two doubles.
LARGEST_POWER = 45
_SPLIT = float((1 << 27) + 1)
_NEAR = 2.0**-20
_HIGH = np.array([float(10**power) for power in range(LARGEST_POWER + 1)])
_LOW = np.array([float(10**power - int(high)) for power, high in enumerate(_HIGH)])


def over_power(whole: Ints, power: Ints) -> tuple[Floats, NDArray[np.bool_]]:
    """The doubles next to whole / 10 ** power [n], and which of them are not sure [n]."""
    above = whole.astype(np.float64)
    above_rest = (whole - above.astype(np.int64)).astype(np.float64)
    below, below_rest = _HIGH[power], _LOW[power]
    quotient = above / below
    product, product_rest = _product(quotient, below)
    left = (above - product) - product_rest + above_rest - quotient * below_rest
    rest = left / below
    found = quotient + rest
    lost = np.abs(rest - (found - quotient))
    gap = np.spacing(np.abs(found))
    # Below a power of two doubles lie twice as dense, and the middle is half as far.
    is_middle = np.abs(lost - gap / 2) < _NEAR * gap
    return found, is_middle | (np.abs(lost - gap / 4) < _NEAR * gap)


def _product(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """The product of doubles, and what its rounding lost (Dekker 1971, section 5)."""
    product = a * b
    a_high = _SPLIT * a - (_SPLIT * a - a)
    b_high = _SPLIT * b - (_SPLIT * b - b)
    a_low, b_low = a - a_high, b - b_high
    rest = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, rest
