"""The replicates of a quantity that two arms have, and the contrast of the arms."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from analysis.stats.mean import Mean
from analysis.stats.sequential import CommonVariance

Word = Literal[
    "faster", "slower", "better", "worse", "same", "different", "undetermined", "not compared"
]
CLAIMS: tuple[Word, ...] = ("faster", "slower", "better", "worse")
Unit = Literal["round", "pass", "repeat", "seed", "node", "pair", "step", "run", "none"]
# Fewer rounds or runs a side support no claim about arms.
FEWEST = 3
ALLOWED = "for which the interval allows"


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """The compared quantity: a positive number of each run.

    Ratios within `margin` of 1 are the same. `seed_scatter` is what two seeds of one recipe
    typically differ by (a standard deviation of logs): two single runs that differ by no more than
    that allows are not called different.
    """

    name: str
    better: Literal["higher", "lower", "unknown"]
    margin: float
    seed_scatter: float = 0.0

    @property
    def is_speed(self) -> bool:
        """Whether it depends on nodes and on what else they do."""
        return self.name.startswith("speed")

    def word(self, log: float) -> Word:
        """Return the word for an arm whose log ratio to the base differs from 0."""
        if self.is_speed:
            return "faster" if log > 0 else "slower"
        if self.better == "unknown":
            return "different"
        return "better" if (log > 0) == (self.better == "higher") else "worse"


@dataclass(frozen=True, kw_only=True)
class Replicate:
    """The log of a quantity of one run, where the run was, and what it shares with others.

    `study_pass` names a pass of a study and the nodes it ran on: in a pass each cell runs once, in
    random order. `rounds` are logs of its turns by the name of the round. `began` is when the run
    began, in seconds, if it took no turns. `stretches` are logs over further parts of the run, in
    which the same quantity has to agree, too. `blur` is how far the logs may be off in every run of
    an arm alike, by printed digits or between two evaluations.
    """

    log: float
    nodes: frozenset[str] = frozenset()
    seed: Hashable = None
    study_pass: Hashable = None
    rounds: Mapping[str, float] = field(default_factory=dict)
    began: float | None = None
    stretches: tuple[float, ...] = ()
    blur: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """The scatter of repeats by all arms of a table.

    `common` is the variance of a repeat, `of_base` that of the base if it may be one of these, and
    `of_pairs` the variance of the gap of a pair. `is_paired` says whether runs of one seed or pass
    share something; None: the arms do not tell.
    """

    common: CommonVariance = field(default_factory=CommonVariance)
    of_base: CommonVariance = field(default_factory=CommonVariance)
    of_pairs: CommonVariance = field(default_factory=CommonVariance)
    is_paired: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """The mean log ratio of two arms over `n` replicates; `why` if there is none, or no claim.

    `sides` are the numbers of replicates of two arms that are not paired. `is_claim` says that it
    holds for the arms, not for these two runs alone. `further` are ratios over other stretches of
    the runs. Two runs `of_one_recipe` differ by the scatter between runs only, and two of which one
    is `unsure`, for a reason, are not called different. `remarks` belong into the sentence, as
    "nodes differ".
    """

    mean: Mean | None
    unit: Unit = "none"
    n: int = 0
    sides: tuple[int, int] | None = None
    is_claim: bool = False
    is_refused: bool = False
    of_one_recipe: bool = False
    unsure: str | None = None
    why: str | None = None
    further: tuple[Mean, ...] = ()
    remarks: tuple[str, ...] = ()


def refused(why: str) -> Contrast:
    """Return a contrast that is not made."""
    return Contrast(mean=None, is_refused=True, why=why)


def blur_of(*sides: Sequence[Replicate]) -> float:
    """Return how far the difference of arms may be off in all of their runs alike."""
    return sum(max((run.blur for run in side), default=0.0) for side in sides)


def mean_log(arm: Sequence[Replicate]) -> float:
    """Return the mean log of the runs of an arm."""
    return float(np.mean([run.log for run in arm]))
