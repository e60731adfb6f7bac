"""Texts of one shape, read all at once: equal but for their digits, they mean alike.

A pattern that names no digit matches two texts of one shape at the same places, so that it is
tried on one of them and says where the numbers of all of them stand.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from analysis.read.run_log import Ints
from analysis.read.text.exact import LARGEST_POWER, MOST_DIGITS, over_power
from analysis.stats.intervals import Floats

Texts = NDArray[np.uint8]
SHAPE = bytes(48 if 48 <= sign < 58 else sign for sign in range(256))
FEWEST_ALIKE = 8
LEAST_SHARE = 1 / 16
MOST_SHAPES, SAMPLED = 8, 32
EXACT_DIGITS, EXACT_POWER = 15, 22
# As many as a number of 32 bits holds: these are multiplied twice as fast.
SHORT_DIGITS = 9
MOST_EXPONENT = 3
BLOCK = 1 << 16


def alike(data: bytes, starts: Ints, ends: Ints, *, longest: int) -> Iterator[tuple[Ints, Texts]]:
    """Groups of the texts data[start:end] that have one shape: indices [m] and bytes [m, length].

    Texts of a rare shape (under `LEAST_SHARE` of all, or too few to be worth it), empty ones and
    those over `longest` are in no group.
    """
    lengths = np.minimum(ends - starts, longest + 1)
    counts = np.bincount(lengths, minlength=1)[: longest + 1]
    counts[0] = 0
    share = 0 if b"\x1b" in data else LEAST_SHARE
    fewest = max(FEWEST_ALIKE, int(len(starts) * share))
    for length in np.flatnonzero(counts >= fewest).tolist():
        left = np.flatnonzero(lengths == length)
        every = np.ndarray((len(data) - length + 1,), f"V{length}", data, strides=(1,))
        rows = every[starts[left]]
        texts = rows.view(np.uint8).reshape(-1, length)
        shapes = _shapes(texts)
        flat = shapes.reshape(-1)
        if np.array_equal(flat[length:], flat[:-length]):
            yield left, texts
            continue
        for _ in range(MOST_SHAPES):
            common = _commonest(shapes, fewest=fewest)
            if common is None:
                break
            same = (shapes == common).all(axis=1)
            if same.sum() >= fewest:
                yield left[same], texts[same]
            left, texts, shapes = left[~same], texts[~same], shapes[~same]


def _commonest(shapes: Texts, *, fewest: int) -> Texts | None:
    """The commonest shape, by a sample; None where it has by far not the fewest texts wanted."""
    if len(shapes) < fewest:
        return None
    sample = shapes[:: max(1, len(shapes) // SAMPLED)]
    [(shape, times)] = Counter(row.tobytes() for row in sample).most_common(1)
    if 2 * times * len(shapes) < fewest * len(sample):
        return None
    return np.frombuffer(shape, dtype=np.uint8)


def _shapes(texts: Texts) -> Texts:
    """The texts with a 0 for every digit, block by block: what fits a cache is not paged in."""
    flat = texts.reshape(-1)
    found, mask = np.empty_like(flat), np.empty(BLOCK, dtype=np.uint8)
    for first in range(0, len(flat), BLOCK):
        part, out = flat[first : first + BLOCK], found[first : first + BLOCK]
        low = mask[: len(part)]
        np.subtract(part, 48, out=out)
        np.less(out, 10, out=low.view(np.bool_))
        low *= 15
        np.invert(low, out=low)
        np.bitwise_and(part, low, out=out)
    return found.reshape(texts.shape)


def each_shape(texts: Sequence[bytes], convert: Callable[[Texts], Floats]) -> Floats:
    """What `convert` makes of texts [n] of any shape; NaN of empty ones."""
    groups: dict[bytes, list[int]] = {}
    for index, text in enumerate(texts):
        if text:
            groups.setdefault(text.translate(SHAPE), []).append(index)
    found = np.full(len(texts), np.nan)
    for shape, indices in groups.items():
        joined = b"".join([texts[index] for index in indices])
        found[indices] = convert(np.frombuffer(joined, np.uint8).reshape(-1, len(shape)))
    return found


def decimals(texts: Texts) -> Floats:
    """Numbers as printed [n]: `1,710`, `23.5%` and `1e-4` too; NaN for what is none or infinite."""
    first = texts[0].tobytes()
    mantissa, mark, power = first.lower().partition(b"e")
    kept = mantissa.rstrip(b"%.")
    whole, _, fraction = kept.lstrip(b"+-").replace(b",", b"").partition(b".")
    digits = whole + fraction
    signs = len(mantissa) - len(mantissa.lstrip(b"+-"))
    plain = digits.isdigit() and len(digits) <= MOST_DIGITS and signs < 2
    if not re.search(rb"\d", first):
        return np.full(len(texts), number(first))
    if not plain or (mark and (kept != mantissa or not _is_exponent(power))):
        return _one_by_one(texts)
    whole_number = whole_numbers(texts[:, : len(kept)])
    exponent = np.full(len(texts), -len(fraction))
    if mark:
        after = texts[:, len(mantissa) + 1 :]
        sign = np.where(after[:, 0] == ord("-"), -1, 1)
        exponent = exponent + sign * whole_numbers(after)
    if len(digits) > EXACT_DIGITS:
        return _long(texts, whole_number, exponent)
    # One rounding of two exact numbers: the result is the nearest double, as float() would give.
    value = whole_number.astype(np.float64)
    scale = 10.0 ** np.arange(EXACT_POWER + 1)
    if mark:
        if np.abs(exponent).max() > EXACT_POWER:
            return _one_by_one(texts)
        size = scale[np.abs(exponent)]
        value = np.where(exponent < 0, value / size, value * size)
    elif fraction:
        value = value / scale[len(fraction)]
    return -value if first[:1] == b"-" else value


def _long(texts: Texts, whole_number: Ints, exponent: Ints) -> Floats:
    """Numbers of more digits than a double holds; what is not sure is read alone."""
    if exponent.max() > 0 or exponent.min() < -LARGEST_POWER:
        return _one_by_one(texts)
    value, is_unsure = over_power(whole_number, -exponent)
    value = -value if texts[0, 0] == ord("-") else value
    value[is_unsure] = _one_by_one(texts[is_unsure])
    return value


def _is_exponent(text: bytes) -> bool:
    digits = text.lstrip(b"+-")
    return digits.isdigit() and len(digits) <= MOST_EXPONENT and len(text) - len(digits) < 2


def integers(texts: Texts) -> Floats:
    """The digits of each text [n] as one number, whatever stands between them."""
    return whole_numbers(texts).astype(np.float64)


def whole_numbers(texts: Texts) -> Ints:
    """The same as whole numbers; of more than 18 digits these are wrong."""
    digits = np.ascontiguousarray(texts.T) - np.uint8(48)
    places = np.flatnonzero(digits[:, 0] < 10).tolist()
    total = np.zeros(len(texts), dtype=np.int64)
    for first in range(0, len(places), SHORT_DIGITS):
        some = places[first : first + SHORT_DIGITS]
        part = digits[some[0]].astype(np.int32)
        for place in some[1:]:
            part *= 10
            part += digits[place]
        total = total * 10 ** len(some) + part
    return total


def _one_by_one(texts: Texts) -> Floats:
    return np.array([number(text.tobytes()) for text in texts], dtype=np.float64)


def number(text: bytes) -> float:
    """One number as printed; NaN for what is none or infinite."""
    try:
        # Python's own numbers may hold underscores, printed ones do not.
        found = math.nan if b"_" in text else float(text.replace(b",", b"").rstrip(b"%."))
    except ValueError:
        return np.nan
    return found if math.isfinite(found) else np.nan
