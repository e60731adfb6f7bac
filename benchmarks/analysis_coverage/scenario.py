"""A scenario: inputs of known truth for one command, drawn anew each time."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

Floats = NDArray[np.float64]
Rng = np.random.Generator

# A verdict "same" is right up to this difference of logs, the largest margin of any command.
SAME = 0.02
# Logs of ratios up to this are no difference.
EQUAL = 1e-9
LEVEL = 0.05
TWO_SIDED = float(-ndtri(LEVEL / 2))


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The truth behind one row of a command's answer.

    `value` is the true ratio of two arms, or the true figure of one run (a rate, a scale); None if
    the row has no number. `of_these` is the ratio of these very runs, for a row that says that it
    speaks of them alone. `planted` says that there is something to find: a difference, or a figure
    that the data determine. `oracle` says whether the best test finds it in this draw. `same`
    overrides whether the word "same" is right. A figure whose interval reaches further than
    `widest` (in logs, to either side) tells nothing. With `strict` also a row that speaks of these
    runs must not call them different if their recipes are equal: two seeds always differ.
    """

    value: float | None = None
    of_these: float | None = None
    planted: bool = False
    oracle: bool = False
    same: bool | None = None
    widest: float = math.inf
    strict: bool = False

    @property
    def is_same(self) -> bool:
        """Whether the word "same" is right."""
        if self.same is not None:
            return self.same
        return self.value is None or abs(math.log(self.value)) <= SAME


@dataclass(frozen=True, kw_only=True)
class Case:
    """One draw: the arguments of a command, and the truth behind each row of its answer.

    Keys of `truths` are parts of the names of rows; the key "" fits every row. With `looks`, the
    command is asked again after each of these functions has added to its input, and a false verdict
    at any time counts.
    """

    argv: list[str]
    truths: Mapping[str, Truth]
    looks: tuple[Callable[[], None], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Cases of one kind; `kind` chooses how the answer is read (`verdicts.READERS`).

    `draws` are the cases of a full run. `note` tells what a reader of the table should know.
    """

    topic: str
    name: str
    kind: str
    make: Callable[[Rng, Path], Case]
    draws: int = 200
    note: str = ""


def compared(
    value: float, *, observed: float, sd: float, comparisons: int = 1,
    of_these: float | None = None, freedom: float = 1e6,
) -> Truth:  # fmt: skip
    """Return the truth of a row that compares two arms whose true ratio is `value`.

    The best test knows the deviation `sd` of the `observed` log ratio, or estimates it with so much
    `freedom`; among several comparisons it is Bonferroni's.
    """
    planted = abs(math.log(value)) > EQUAL
    quantile = float(stdtrit(freedom, 1 - LEVEL / 2 / comparisons))
    is_found = planted and abs(observed) > quantile * sd
    return Truth(value=value, of_these=of_these, planted=planted, oracle=is_found)


def pooled(cells: Sequence[Floats]) -> tuple[float, float]:
    """Return the deviation of a repeat by all cells, and its freedom: what the best test knows."""
    freedom = sum(len(logs) - 1 for logs in cells)
    squares = sum(float(logs.var()) * len(logs) for logs in cells)
    return math.sqrt(squares / freedom), float(freedom)
