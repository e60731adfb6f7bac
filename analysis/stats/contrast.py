"""Compare two arms on one quantity, over the unit of replication that their data have.

The unit is the first of these that both arms have: rounds in which they took turns on one node;
repeats or seeds, at least three a side; steps that two single runs both record; one run each. Only
the first two support a claim about the arms, the others speak of these two runs. Repeats are paired
by pass, and losses by seed, if what a pair shares is seen in its runs. Repeats that ran on nodes of
their own are compared node by node, or with an allowance for the nodes.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from analysis.stats.mean import Mean
from analysis.stats.samples import (
    one_sample,
    satterthwaite,
    share_something,
    welch,
    without_columns,
)
from analysis.stats.sequential import CommonVariance, common_variance
from analysis.stats.summary import robust

Word = Literal[
    "faster", "slower", "better", "worse", "same", "different", "undetermined", "not compared"
]
Unit = Literal["round", "pass", "repeat", "seed", "node", "pair", "step", "run", "none"]
# Fewer rounds or runs a side support no claim about arms.
FEWEST = 3
NODES_DIFFER = "nodes differ"
NODES_UNKNOWN = "on nodes that are not recorded"
ALLOWED = "for which the interval allows"
# What two runs of one recipe on one node, or two seeds of it, differ by, if nothing else is known.
RUN_SCATTER = 0.02
# So many single runs of a table show their own scatter, if it is no more than this.
FEWEST_SINGLE, MOST_SCATTER = 12, 0.08
# What two nodes of one model may differ by, as a standard deviation of logs.
NODE_SCATTER = 0.05


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

    def word(self, log: float) -> Word:
        """Return the word for an arm whose log ratio to the base differs from 0."""
        if self.name.startswith("speed"):
            return "faster" if log > 0 else "slower"
        if self.better == "unknown":
            return "different"
        return "better" if (log > 0) == (self.better == "higher") else "worse"


@dataclass(frozen=True, kw_only=True)
class Replicate:
    """The log of a quantity of one run, where the run was, and what it shares with others.

    `study_pass` names a pass of a study and the nodes it ran on: in a pass each cell runs once, in
    random order. `rounds` are logs of its turns by the name of the round. `stretches` are logs over
    further parts of the run, in which the same quantity has to agree, too. `blur` is how far the
    logs may be off in every run of an arm alike, by printed digits or between two evaluations.
    """

    log: float
    nodes: frozenset[str] = frozenset()
    seed: Hashable = None
    study_pass: Hashable = None
    rounds: Mapping[str, float] = field(default_factory=dict)
    stretches: tuple[float, ...] = ()
    blur: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """The mean log ratio of two arms over `n` replicates; `why` if there is none, or no claim.

    `sides` are the numbers of replicates of two arms that are not paired. `is_claim` says that it
    holds for the arms, not for these two runs alone. `further` are ratios over other stretches of
    the runs. Two runs `of_one_recipe` differ by the scatter between runs only. `remarks` belong
    into the sentence, as "nodes differ".
    """

    mean: Mean | None
    unit: Unit = "none"
    n: int = 0
    sides: tuple[int, int] | None = None
    is_claim: bool = False
    is_refused: bool = False
    of_one_recipe: bool = False
    why: str | None = None
    further: tuple[Mean, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Scatter:
    """What all arms of a table say about the scatter of repeats.

    `common` is the variance of a repeat, and `of_pairs` the variance of the gap of a pair.
    `is_paired` says whether runs of one seed or pass share something; None: the arms do not tell.
    """

    common: CommonVariance = field(default_factory=CommonVariance)
    of_pairs: CommonVariance = field(default_factory=CommonVariance)
    is_paired: bool | None = None


def scatter_of(arms: Sequence[Sequence[Replicate]], *, of_loss: bool = False) -> Scatter:
    """Return the scatter of the repeats of all arms, the first of which is the base of each pair.

    Arms that have the seeds or passes of the base tell whether pairs share something.
    """
    logs = [np.array([run.log for run in arm]) for arm in arms if len(arm) >= FEWEST]
    # It supports both sides of a contrast, which are two of these arms.
    common = common_variance(logs).at_most(sum(len(own) - 1 for own in logs[2:]) / 2)
    named = [_by_name(arm, of_loss) for arm in arms]
    full = [own for own in named if named[0].keys() <= own.keys()]
    if len(named[0]) < FEWEST or len(full) < 2:
        return Scatter(common=common)
    table = np.array([[own[name].log for name in named[0]] for own in full])
    if not share_something(table):
        return Scatter(common=common, is_paired=False)
    rest = without_columns(table)
    own = common_variance([*rest])
    if not own.is_common_to(float(rest[0].var(ddof=1)), len(named[0])):
        return Scatter(common=common, is_paired=True)  # the base is in every pair
    of_pairs = replace(own, value=2 * own.value)
    return Scatter(common=common, of_pairs=of_pairs, is_paired=True)


def refused(why: str) -> Contrast:
    """Return a contrast that is not made."""
    return Contrast(mean=None, is_refused=True, why=why)


def contrast(
    base: Sequence[Replicate],
    arm: Sequence[Replicate],
    *,
    steps: Contrast | None = None,
    of_loss: bool = False,
    scatter: Scatter | None = None,
) -> Contrast:
    """Return the log ratio of `arm` over `base` by the rule of the module.

    `steps` is the contrast of two single runs, by steps or as they are. Losses do not depend on
    nodes or passes, but runs of one seed share data and noise. `scatter` is what all arms of a
    table say about their repeats. Repeats do not average a blur out: the interval reaches further
    by it.
    """
    found = _contrast(base, arm, steps, of_loss, scatter or Scatter())
    blur = blur_of(base, arm)
    if found.mean is None or blur == 0:
        return found
    further = tuple(mean.widened(blur) for mean in found.further)
    return replace(found, mean=found.mean.widened(blur), further=further)


def blur_of(*sides: Sequence[Replicate]) -> float:
    """Return how far the difference of arms may be off in all of their runs alike."""
    return sum(max((run.blur for run in side), default=0.0) for side in sides)


def _contrast(
    base: Sequence[Replicate], arm: Sequence[Replicate], steps: Contrast | None, of_loss: bool,
    scatter: Scatter,
) -> Contrast:  # fmt: skip
    if by_round := _by_rounds(base, arm):
        return by_round
    counts = len(base), len(arm)
    if counts == (1, 1):
        if steps is not None:
            return _with_nodes(steps, base, arm)
        return Contrast(mean=None, why="one run a side without an interval of its own")
    if 1 in counts:
        return refused(f"one run against {max(counts)}: run both equally often")
    if min(counts) < FEWEST:
        return Contrast(
            mean=Mean(value=_mean_log(arm) - _mean_log(base)),
            unit="repeat",
            n=min(counts),
            why=f"{min(counts)} runs a side: a claim about arms needs {FEWEST}",
        )
    paired = _by_pairs(base, arm, of_loss, scatter)
    if of_loss:
        return _with_nodes(paired or _welch(base, arm, scatter.common), base, arm)
    return paired or _by_repeats(base, arm, scatter.common)


def _by_name(arm: Sequence[Replicate], of_loss: bool) -> dict[Hashable, Replicate]:
    """Return the runs of an arm by what they may share with others: their seed, or their pass."""
    named = {(run.seed if of_loss else run.study_pass): run for run in reversed(arm)}
    return {name: run for name, run in named.items() if name is not None}


def _mean_log(arm: Sequence[Replicate]) -> float:
    return float(np.mean([run.log for run in arm]))


def _by_rounds(base: Sequence[Replicate], arm: Sequence[Replicate]) -> Contrast | None:
    """Pair the turns of each round that both arms have.

    The speed of a node changes from round to round, so that two runs of too few common rounds have
    no interval.
    """
    sides = [_round_means(side) for side in (base, arm)]
    if not all(sides):
        return None
    shared = [name for name in sides[0] if name in sides[1]]
    if len(shared) < FEWEST:
        if len(base) > 1 or len(arm) > 1:
            return None
        return Contrast(
            mean=Mean(value=_mean_log(arm) - _mean_log(base)),
            unit="round",
            n=len(shared),
            why=f"{len(shared)} rounds in common: a claim needs {FEWEST}",
        )
    gaps = np.array([sides[1][name] - sides[0][name] for name in shared])
    return Contrast(mean=one_sample(gaps), unit="round", n=len(gaps), is_claim=True)


def _round_means(arm: Sequence[Replicate]) -> dict[str, float]:
    names = dict.fromkeys(name for run in arm for name in run.rounds)
    return {
        name: float(np.mean([run.rounds[name] for run in arm if name in run.rounds]))
        for name in names
    }


def _by_pairs(
    base: Sequence[Replicate], arm: Sequence[Replicate], of_loss: bool, scatter: Scatter
) -> Contrast | None:
    """Pair the runs of each seed or pass that both arms have, if pairs share something.

    Otherwise pairs would cost half of the degrees of freedom for nothing.
    """
    before, after = _by_name(base, of_loss), _by_name(arm, of_loss)
    pairs = [(run, after[name]) for name, run in before.items() if name in after]
    if len(pairs) < FEWEST:
        return None
    is_paired = scatter.is_paired
    if is_paired is None:
        is_paired = share_something(np.array([[a.log, b.log] for a, b in pairs]).T)
    if not is_paired:
        return None
    logs = np.array([[b.log - a.log, *_further(a, b)] for a, b in pairs])
    gaps, *stretches = logs.T
    found = Contrast(
        mean=one_sample(gaps, common=scatter.of_pairs),
        unit="seed" if of_loss else "pass",
        n=len(pairs),
        is_claim=True,
        further=tuple(map(one_sample, stretches)),
    )
    return _of_some(found, len(pairs), len(pairs), base, arm)


def _of_some(
    found: Contrast, below: int, above: int, base: Sequence[Replicate], arm: Sequence[Replicate]
) -> Contrast:
    """Say how many runs of each arm count, if others do not."""
    if (below, above) == (len(base), len(arm)):
        return found
    remark = f"{below} of {len(base)} and {above} of {len(arm)} runs count"
    return replace(found, remarks=(*found.remarks, remark))


def _further(a: Replicate, b: Replicate) -> list[float]:
    return [after - before for before, after in zip(a.stretches, b.stretches, strict=True)]


def _by_repeats(
    base: Sequence[Replicate], arm: Sequence[Replicate], common: CommonVariance
) -> Contrast:
    """Compare runs of nodes that both arms used; if those are too few, nodes with each other."""
    where = [[run.nodes for run in side] for side in (base, arm)]
    if not all(map(all, where)):
        return replace(_welch(base, arm, common), remarks=(NODES_UNKNOWN,))
    shared = common_nodes(*where)
    if len(shared) >= FEWEST:
        gaps = [_node_mean(arm, node) - _node_mean(base, node) for node in shared]
        found = one_sample(np.array(gaps))
        return Contrast(mean=found, unit="node", n=len(gaps), is_claim=True)
    if shared:
        here = [[run for run in side if run.nodes in shared] for side in (base, arm)]
        below, above = map(len, here)
        within = _welch(here[0], here[1], common)
        if len(shared) > 1:
            within = replace(within, mean=_within_nodes(here[0], here[1]), further=())
        return _of_some(within, below, above, base, arm)
    groups = [_apart_from_each_other(side) for side in (base, arm)]
    if min(map(len, groups)) >= FEWEST:
        means = [np.array([_mean_log(group) for group in side]) for side in groups]
        below, above = map(len, groups)
        mean = welch(means[0], means[1])
        return Contrast(mean=mean, unit="node", n=min(below, above), sides=(below, above),
                        is_claim=True, remarks=(NODES_DIFFER,))  # fmt: skip
    return _apart(_welch(base, arm, common))


def common_nodes(
    base: Sequence[frozenset[str]], arm: Sequence[frozenset[str]]
) -> set[frozenset[str]]:
    """Return the nodes of runs that both arms used, if these are enough to compare them there."""
    shared = {*base} & {*arm}
    here = min(sum(nodes in shared for nodes in side) for side in (base, arm))
    is_enough = {*base} == {*arm} or here > max(len(shared), FEWEST - 1) or len(shared) >= FEWEST
    return shared if is_enough else set()


def _apart_from_each_other(arm: Sequence[Replicate]) -> list[list[Replicate]]:
    """Return the runs of an arm in groups that have no node in common: a shared one is one fact."""
    groups: list[list[Replicate]] = []
    for run in arm:
        joined = [group for group in groups if any(run.nodes & other.nodes for other in group)]
        groups = [group for group in groups if group not in joined]
        groups.append([run, *(other for group in joined for other in group)])
    return groups


def _apart(found: Contrast) -> Contrast:
    """Allow for what two nodes differ by."""
    assert found.mean is not None
    mean = _allowing(found.mean, NODE_SCATTER)
    remark = f"{NODES_DIFFER}, {ALLOWED} {NODE_SCATTER:.0%} each"
    return replace(found, mean=mean, is_claim=False, remarks=(remark,))


def scatter_of_single(contrasts: Sequence[Contrast]) -> float:
    """Return what a run of a cell is allowed to scatter by, from contrasts with one base.

    If the single runs of all cells lie within little more, they may be no more than scatter.
    """
    logs = [one.mean.value for one in contrasts if one.mean and one.unit in ("step", "run")]
    if len(logs) + 1 < FEWEST_SINGLE:
        return RUN_SCATTER
    _, sigma = robust(np.array([0.0, *logs]))
    return max(RUN_SCATTER, sigma) if sigma <= MOST_SCATTER else RUN_SCATTER


def of_cells(found: Contrast, quantity: Quantity, *, scatter: float = RUN_SCATTER) -> Contrast:
    """Return the contrast of two single runs as one of their cells, with an allowance for runs.

    What agrees within the margin stays: runs of one seed have the same losses.
    """
    if found.unit not in ("step", "run") or found.mean is None or found.mean.error is None:
        return found
    if found.further and all(is_within(m, quantity.margin) for m in (found.mean, *found.further)):
        return found
    remark = f"one run each, {ALLOWED} {scatter:.0%} each"
    remark += ", as these cells scatter" if scatter > RUN_SCATTER else ""
    widened = _allowing(found.mean, scatter)
    return replace(found, mean=widened, unit="run", n=1, remarks=(*found.remarks, remark))


def _allowing(mean: Mean, scatter: float) -> Mean:
    """Return a mean with the error of two runs, nodes or seeds beside its own (Satterthwaite)."""
    assert mean.error is not None
    error = math.hypot(mean.error, 2**0.5 * scatter)
    freedom = mean.freedom * (error / max(mean.error, 1e-12)) ** 4
    return Mean(value=mean.value, error=error, freedom=min(freedom, 1e6))


def _within_nodes(base: Sequence[Replicate], arm: Sequence[Replicate]) -> Mean:
    """Return the mean difference within nodes that both arms used, so that a node's speed cancels.

    Each arm has a variance of its own about the means of its nodes (Welch). A node counts by the
    precision of its difference.
    """
    nodes = list(dict.fromkeys(run.nodes for run in base))
    sides = [[[run.log for run in side if run.nodes == node] for node in nodes]
             for side in (base, arm)]  # fmt: skip
    counts = np.array([[len(logs) for logs in side] for side in sides])  # [2, nodes]
    means = np.array([[np.mean(logs) for logs in side] for side in sides])
    weights = 1 / (1 / counts).sum(axis=0)
    weights /= weights.sum()
    freedom = counts.sum(axis=1) - len(nodes)
    squares = [sum(float(np.var(logs)) * len(logs) for logs in side) for side in sides]
    parts = np.array(squares) / freedom * (weights**2 / counts).sum(axis=1)
    gap = float(weights @ (means[1] - means[0]))
    return satterthwaite(gap, parts.tolist(), freedom.tolist())


def _node_mean(arm: Sequence[Replicate], node: frozenset[str]) -> float:
    return _mean_log([run for run in arm if run.nodes == node])


def _with_nodes(found: Contrast, base: Sequence[Replicate], arm: Sequence[Replicate]) -> Contrast:
    """Say that no nodes ran both arms, if they are known."""
    nodes = [[run.nodes for run in side] for side in (base, arm)]
    is_apart = all(map(all, nodes)) and not common_nodes(*nodes)
    return replace(found, remarks=(*found.remarks, NODES_DIFFER)) if is_apart else found


def _welch(base: Sequence[Replicate], arm: Sequence[Replicate], common: CommonVariance) -> Contrast:
    logs = [np.array([[run.log, *run.stretches] for run in side]).T for side in (base, arm)]
    mean = welch(logs[0][0], logs[1][0], common=common)
    further = [welch(a, b) for a, b in zip(logs[0][1:], logs[1][1:], strict=True)]
    sides = len(base), len(arm)
    seeds = [{run.seed for run in side} for side in (base, arm)]
    unit: Unit = "seed" if [*map(len, seeds)] == [*sides] else "repeat"
    return Contrast(
        mean=mean, unit=unit, n=min(sides), sides=sides, is_claim=True, further=tuple(further)
    )


def is_within(mean: Mean, margin: float) -> bool:
    """Whether the interval of a log ratio is within a margin of 1."""
    ends = mean.estimate()
    return (
        ends.low is not None
        and ends.high is not None
        and max(-ends.low, ends.high) <= math.log1p(margin)
    )
