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
from analysis.stats.samples import one_sample, satterthwaite, share_something, welch
from analysis.stats.sequential import CommonVariance
from analysis.stats.summary import robust

Word = Literal[
    "faster", "slower", "better", "worse", "same", "different", "undetermined", "not compared"
]
Unit = Literal["round", "pass", "repeat", "seed", "pair", "step", "run", "none"]
# Fewer rounds or runs a side support no claim about arms.
FEWEST = 3
NODES_DIFFER = "nodes differ"
NODES_UNKNOWN = "on nodes that are not recorded"
ALLOWED = "for which the interval allows"
# What two runs of one recipe on one node, or two seeds of it, differ by, if nothing else is known.
RUN_SCATTER = 0.02
# So many single runs of a table show their own scatter, if it is no more than this.
FEWEST_SINGLE, MOST_SCATTER = 6, 0.08
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

    `is_claim` says that it holds for the arms, not for these two runs alone. `further` are ratios
    over other stretches of the runs. Two runs `of_one_recipe` differ by the scatter between runs
    only. `remarks` belong into the sentence, as "nodes differ".
    """

    mean: Mean | None
    unit: Unit = "none"
    n: int = 0
    is_claim: bool = False
    is_refused: bool = False
    of_one_recipe: bool = False
    why: str | None = None
    further: tuple[Mean, ...] = ()
    remarks: tuple[str, ...] = ()


def refused(why: str) -> Contrast:
    """Return a contrast that is not made."""
    return Contrast(mean=None, is_refused=True, why=why)


def contrast(
    base: Sequence[Replicate],
    arm: Sequence[Replicate],
    *,
    steps: Contrast | None = None,
    of_loss: bool = False,
    is_paired: bool | None = None,
    common: CommonVariance | None = None,
) -> Contrast:
    """Return the log ratio of `arm` over `base` by the rule of the module.

    `steps` is the contrast of two single runs, by steps or as they are. Losses do not depend on
    nodes or passes, but runs of one seed share data and noise. `is_paired` says whether runs of a
    pass or seed share something, by all cells of a study; if it is None, these two arms tell.
    `common` is what all cells say about the scatter of repeats. Repeats do not average a blur out:
    the interval reaches further by it.
    """
    found = _contrast(base, arm, steps, of_loss, is_paired, common or CommonVariance())
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
    is_paired: bool | None, common: CommonVariance,
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
    if of_loss:
        by_seed = [{run.seed: run for run in reversed(side)} for side in (base, arm)]
        return _with_nodes(
            _by_pairs(by_seed[0], by_seed[1], "seed", is_paired) or _welch(base, arm, common),
            base,
            arm,
        )
    by_pass = [{run.study_pass: run for run in side if run.study_pass} for side in (base, arm)]
    return _by_pairs(by_pass[0], by_pass[1], "pass", is_paired) or _by_repeats(base, arm, common)


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
    base: Mapping[Hashable, Replicate],
    arm: Mapping[Hashable, Replicate],
    unit: Unit,
    is_paired: bool | None,
) -> Contrast | None:
    """Pair the runs of each seed or pass that both arms have, if pairs share something.

    Otherwise pairs would cost half of the degrees of freedom for nothing.
    """
    pairs = [(run, arm[name]) for name, run in base.items() if name in arm]
    if len(pairs) < FEWEST:
        return None
    if is_paired is None:
        is_paired = share_something(np.array([[a.log, b.log] for a, b in pairs]).T)
    if not is_paired:
        return None
    logs = np.array([[b.log - a.log, *_further(a, b)] for a, b in pairs])
    mean, *further = map(one_sample, logs.T)
    return Contrast(mean=mean, unit=unit, n=len(pairs), is_claim=True, further=tuple(further))


def _further(a: Replicate, b: Replicate) -> list[float]:
    return [after - before for before, after in zip(a.stretches, b.stretches, strict=True)]


def _by_repeats(
    base: Sequence[Replicate], arm: Sequence[Replicate], common: CommonVariance
) -> Contrast:
    """Compare runs of nodes that both arms used; if there are none, nodes with each other."""
    where = [{run.nodes for run in side} for side in (base, arm)]
    is_known = all(nodes for side in where for nodes in side)
    shared = where[0] & where[1]
    if not is_known:
        return replace(_welch(base, arm, common), remarks=(NODES_UNKNOWN,))
    if where[0] == where[1] and len(shared) == 1:
        return _welch(base, arm, common)
    if len(shared) >= FEWEST:
        gaps = [_node_mean(arm, node) - _node_mean(base, node) for node in shared]
        found = one_sample(np.array(gaps))
        return Contrast(mean=found, unit="repeat", n=len(gaps), is_claim=True)
    if shared:
        here = [[run for run in side if run.nodes in shared] for side in (base, arm)]
        if len(shared) == 1 and min(map(len, here)) >= FEWEST:
            return _welch(here[0], here[1], common)
        if min(map(len, here)) > max(len(shared), FEWEST - 1):
            mean = _within_nodes(here[0], here[1])
            n = min(map(len, here))
            return Contrast(mean=mean, unit="repeat", n=n, is_claim=True)
        why = f"only {' v '.join(str(len(side)) for side in here)} runs were on nodes of both arms"
        return Contrast(
            mean=Mean(value=_mean_log(arm) - _mean_log(base)), unit="repeat", why=why,
            n=min(map(len, here)),
        )  # fmt: skip
    groups = [_apart_from_each_other(side) for side in (base, arm)]
    if min(map(len, groups)) >= FEWEST:
        means = [np.array([_mean_log(group) for group in side]) for side in groups]
        n = min(map(len, groups))
        return Contrast(mean=welch(means[0], means[1]), unit="repeat", n=n, is_claim=True,
                        remarks=(NODES_DIFFER,))  # fmt: skip
    return _apart(_welch(base, arm, common))


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
    nodes = [{run.nodes for run in side} for side in (base, arm)]
    is_apart = all(map(all, nodes)) and not nodes[0] & nodes[1]
    return replace(found, remarks=(*found.remarks, NODES_DIFFER)) if is_apart else found


def _welch(base: Sequence[Replicate], arm: Sequence[Replicate], common: CommonVariance) -> Contrast:
    logs = [np.array([[run.log, *run.stretches] for run in side]).T for side in (base, arm)]
    mean = welch(logs[0][0], logs[1][0], common=common)
    further = [welch(a, b) for a, b in zip(logs[0][1:], logs[1][1:], strict=True)]
    n = min(len(base), len(arm))
    seeds = [{run.seed for run in side} for side in (base, arm)]
    unit: Unit = "seed" if all(len(own) >= FEWEST for own in seeds) else "repeat"
    return Contrast(mean=mean, unit=unit, n=n, is_claim=True, further=tuple(further))


def is_within(mean: Mean, margin: float) -> bool:
    """Whether the interval of a log ratio is within a margin of 1."""
    ends = mean.estimate()
    return (
        ends.low is not None
        and ends.high is not None
        and max(-ends.low, ends.high) <= math.log1p(margin)
    )
