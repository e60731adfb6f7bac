"""Compare several runs a side that are not paired, on the nodes that both arms used if they can be.

Runs on nodes of their own are compared node by node, or with an allowance for the nodes; arms of
which one ran before the other, beside a linear drift.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.special import fdtrc

from analysis.stats.intervals import Floats
from analysis.stats.judge import LEVEL
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
from analysis.stats.samples import beside_drift, one_sample, welch

OTHER_HOURS = "each ran at hours of the day of its own, in which others may use the node"
DAY_S = 86_400.0
IN_BLOCKS = "most runs of one before those of the other"
NODES_DIFFER = "nodes differ"
NODES_UNKNOWN = "on nodes that are not recorded"
# What two nodes of one model may differ by, as a standard deviation of logs.
NODE_SCATTER = 0.05


def by_repeats(base: Sequence[Replicate], arm: Sequence[Replicate], scatter: Scatter) -> Contrast:
    """Compare runs of nodes that both arms used; if those are too few, nodes with each other."""
    where = [[run.nodes for run in side] for side in (base, arm)]
    begun = [[run.began for run in side] for side in (base, arm)]
    if at_other_hours(*begun):
        gap, n = Mean(value=mean_log(arm) - mean_log(base)), min(len(base), len(arm))
        return Contrast(mean=gap, unit="repeat", n=n, why=OTHER_HOURS)
    places = places_in_blocks(*begun)
    if not all(map(all, where)):
        unpaired = _unpaired(base, arm, scatter, places)
        return replace(unpaired, remarks=(NODES_UNKNOWN, *unpaired.remarks))
    shared = common_nodes(*where)
    if places is not None:
        unpaired = _unpaired(base, arm, scatter, places)
        return unpaired if shared else _apart(unpaired)
    if len(shared) >= FEWEST:
        gaps = [_node_mean(arm, node) - _node_mean(base, node) for node in shared]
        found = one_sample(np.array(gaps))
        return Contrast(mean=found, unit="node", n=len(gaps), is_claim=True)
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
    return _apart(welch_of(base, arm, scatter))


def places_in_blocks(
    base: Sequence[float | None], arm: Sequence[float | None]
) -> list[Floats] | None:
    """Return the places of runs in the order of their begins, if the arms ran in blocks, else None.

    A node that became slower from run to run would by itself make the arms differ: the places do,
    by the test of the rates.
    """
    begun = sorted(one for one in (*base, *arm) if one is not None)
    if min(len(base), len(arm)) < 2 or len(begun) < len(base) + len(arm):
        return None
    places = [np.searchsorted(begun, np.array(side)).astype(float) for side in (base, arm)]
    return places if welch(*places).p_value() < LEVEL else None


def at_other_hours(base: Sequence[float | None], arm: Sequence[float | None]) -> bool:
    """Whether the runs of two arms began at other hours of the day, over more than a day.

    A node that others use by day would by itself make such arms differ.
    """
    begun = np.array([one for one in (*base, *arm) if one is not None])
    left = len(begun) - 3
    if left < FEWEST or len(begun) < len(base) + len(arm) or np.ptp(begun) <= DAY_S:
        return False
    hour = 2 * np.pi * begun / DAY_S
    design = np.stack([np.ones(len(begun)), np.cos(hour), np.sin(hour)], axis=1)
    is_second = np.repeat([0.0, 1.0], [len(base), len(arm)])
    rest = is_second - design @ np.linalg.lstsq(design, is_second, rcond=1e-6)[0]
    unexplained = float(rest @ rest) / float(((is_second - is_second.mean()) ** 2).sum())
    ratio = (1 / max(unexplained, 1e-12) - 1) * left / 2
    return bool(fdtrc(2, left, ratio) < LEVEL)


def _unpaired(
    base: Sequence[Replicate], arm: Sequence[Replicate], scatter: Scatter,
    places: Sequence[Floats] | None,
) -> Contrast:  # fmt: skip
    """Return the contrast of unpaired runs; in blocks it is one beside the drift, and no claim."""
    found = welch_of(base, arm, scatter)
    if places is None:
        return found
    mean = beside_drift([np.array([run.log for run in side]) for side in (base, arm)], places)
    remark = f"{IN_BLOCKS}, {ALLOWED}"
    return replace(found, mean=mean, further=(), is_claim=False, remarks=(remark,))


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
    mean = found.mean.allowing(NODE_SCATTER)
    remark = f"{NODES_DIFFER}, {ALLOWED} {NODE_SCATTER:.0%} each"
    return replace(found, mean=mean, is_claim=False, remarks=(*found.remarks, remark))


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
