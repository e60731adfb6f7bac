"""Compare several runs a side that are not paired, on the nodes that both arms used if they can be.

Runs on nodes of their own are compared node by node, or with an allowance for the nodes, and arms
that ran at times of their own with one for the times.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from analysis.stats.mean import Mean, satterthwaite
from analysis.stats.replicates import (
    ALLOWED,
    FEWEST,
    Contrast,
    Replicate,
    Scatter,
    Unit,
    mean_log,
)
from analysis.stats.samples import explain, one_sample, welch

TIMES_DIFFER = "each ran at times of its own"
DAY_S = 86_400.0
NODES_DIFFER = "nodes differ"
NODES_UNKNOWN = "on nodes that are not recorded"
# What two nodes of one model, or two times of a node, may differ by (standard deviation of logs).
NODE_SCATTER = 0.05


def by_repeats(base: Sequence[Replicate], arm: Sequence[Replicate], scatter: Scatter) -> Contrast:
    """Compare runs of nodes that both arms used; if those are too few, nodes with each other."""
    where = [[run.nodes for run in side] for side in (base, arm)]
    is_known = all(map(all, where))
    shared = common_nodes(*where) if is_known else set()
    begun = [[run.began for run in side] for side in (base, arm)]
    if (is_apart := ran_apart(*begun)) or not is_known:
        found = welch_of(base, arm, scatter)
        if not is_known:
            found = replace(found, remarks=(NODES_UNKNOWN,))
        elif not shared:
            found = _allowing(found, NODES_DIFFER)
        return _allowing(found, TIMES_DIFFER) if is_apart else found
    if len(shared) >= FEWEST:
        gaps = [_node_mean(arm, node) - _node_mean(base, node) for node in shared]
        mean = one_sample(np.array(gaps))
        return Contrast(mean=mean, unit="node", n=len(gaps), is_claim=True)
    if shared:
        here = [[run for run in side if run.nodes in shared] for side in (base, arm)]
        below, above = map(len, here)
        within = welch_of(here[0], here[1], scatter)
        if len(shared) > 1:
            within = replace(within, mean=_within_nodes(here[0], here[1]), further=())
        return of_some(within, below, above, base, arm)
    groups = [_apart_from_each_other(side) for side in (base, arm)]
    if min(map(len, groups)) >= FEWEST:
        means = [np.array([mean_log(group) for group in side]) for side in groups]
        below, above = map(len, groups)
        mean = welch(means[0], means[1])
        return Contrast(mean=mean, unit="node", n=min(below, above), sides=(below, above),
                        is_claim=True, remarks=(NODES_DIFFER,))  # fmt: skip
    return _allowing(welch_of(base, arm, scatter), NODES_DIFFER)


def ran_apart(base: Sequence[float | None], arm: Sequence[float | None]) -> bool:
    """Whether runs of one arm mostly began before those of the other, or at other hours of the day.

    A node that became slower, or that others use by day, would by itself make such arms differ.
    """
    begun = np.array([one for one in (*base, *arm) if one is not None])
    if min(len(base), len(arm)) < 2 or len(begun) < len(base) + len(arm):
        return False
    is_second = np.repeat([0.0, 1.0], [len(base), len(arm)])
    hour = 2 * np.pi * begun / DAY_S
    causes = [np.argsort(np.argsort(begun))[:, None].astype(float)]
    causes += [np.stack([np.cos(hour), np.sin(hour)], axis=1)] if np.ptp(begun) > DAY_S else []
    return any(explain(is_second, one) for one in causes)


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


def _allowing(found: Contrast, remark: str) -> Contrast:
    """Allow for what two nodes, or two times, differ by."""
    assert found.mean is not None
    mean = found.mean.allowing(NODE_SCATTER)
    told = f"{remark}, {ALLOWED} {NODE_SCATTER:.0%} each"
    return replace(found, mean=mean, is_claim=False, remarks=(*found.remarks, told))


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
    return mean_log([run for run in arm if run.nodes == node])


def with_nodes(found: Contrast, base: Sequence[Replicate], arm: Sequence[Replicate]) -> Contrast:
    """Say that no nodes ran both arms, if they are known."""
    nodes = [[run.nodes for run in side] for side in (base, arm)]
    is_apart = all(map(all, nodes)) and not common_nodes(*nodes)
    return replace(found, remarks=(*found.remarks, NODES_DIFFER)) if is_apart else found


def welch_of(base: Sequence[Replicate], arm: Sequence[Replicate], scatter: Scatter) -> Contrast:
    """Return the contrast of unpaired runs, each arm with a variance of its own (Welch)."""
    logs = [np.array([[run.log, *run.stretches] for run in side]).T for side in (base, arm)]
    mean = welch(logs[0][0], logs[1][0], lent=(scatter.of_base, scatter.common))
    further = [welch(a, b) for a, b in zip(logs[0][1:], logs[1][1:], strict=True)]
    sides = len(base), len(arm)
    seeds = [{run.seed for run in side} for side in (base, arm)]
    unit: Unit = "seed" if [*map(len, seeds)] == [*sides] else "repeat"
    return Contrast(
        mean=mean, unit=unit, n=min(sides), sides=sides, is_claim=True, further=tuple(further)
    )


def of_some(
    found: Contrast, below: int, above: int, base: Sequence[Replicate], arm: Sequence[Replicate]
) -> Contrast:
    """Say how many runs of each arm count, if others do not."""
    if (below, above) == (len(base), len(arm)):
        return found
    remark = f"{below} of {len(base)} and {above} of {len(arm)} runs count"
    return replace(found, remarks=(*found.remarks, remark))
