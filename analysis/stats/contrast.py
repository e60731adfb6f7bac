"""Compare two arms on one quantity, over the unit of replication that their data have.

The unit is the first of these that both arms have: rounds in which they took turns on one node;
repeats or seeds, at least three a side; steps that two single runs both record; one run each. Only
the first two support a claim about the arms, the others speak of these two runs. Repeats are paired
by pass, and losses by seed, if what a pair shares is seen in its runs. Repeats that ran on nodes of
their own are compared node by node, or with an allowance for the nodes.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np

from analysis.stats.intervals import Floats
from analysis.stats.mean import CERTAIN, Mean
from analysis.stats.repeats import (
    NODE_SCATTER,
    NODES_DIFFER,
    by_repeats,
    of_some,
    welch_of,
    with_nodes,
)
from analysis.stats.replicates import (
    ALLOWED,
    FEWEST,
    Contrast,
    Quantity,
    Replicate,
    Scatter,
    blur_of,
    mean_log,
    refused,
)
from analysis.stats.samples import one_sample, share_something, without_columns
from analysis.stats.sequential import CommonVariance, common_variance
from analysis.stats.summary import robust

# What two runs of one recipe on one node, or two seeds of it, differ by, if nothing else is known.
RUN_SCATTER = CommonVariance(value=0.02**2, freedom=CERTAIN)
NODES = CommonVariance(value=NODE_SCATTER**2, freedom=CERTAIN)
# So many single runs of a table show their own scatter, if it is no more than this.
FEWEST_SINGLE, MOST_SCATTER = 12, 0.08
# The cells of a table lend at most so many degrees of freedom, and none to a base that scatters
# more than this share would by chance: all contrasts share its error.
MOST_LENT, UNLIKE_BASE = 12, 0.2
# The share of normal values that the median absolute deviation makes use of.
EFFICIENCY_OF_MAD = 0.37


def scatter_of(arms: Sequence[Sequence[Replicate]], *, of_loss: bool = False) -> Scatter:
    """Return the scatter of the repeats of all arms, the first of which is the base of each pair.

    Arms that have the seeds or passes of the base tell whether pairs share something.
    """
    logs = [np.array([run.log for run in arm]) for arm in arms if len(arm) >= FEWEST]
    common = _of_others(logs)
    of_base = common.lent_to(logs[0], unlike=UNLIKE_BASE) if logs else common
    named = [_by_name(arm, of_loss) for arm in arms]
    full = [own for own in named if named[0].keys() <= own.keys()]
    if len(named[0]) < FEWEST or len(full) < 2:
        return Scatter(common=common, of_base=of_base)
    table = np.array([[own[name].log for name in named[0]] for own in full])
    if not share_something(table):
        return Scatter(common=common, of_base=of_base, is_paired=False)
    rest = without_columns(table)
    own = _of_others([*rest]).lent_to(rest[0], unlike=UNLIKE_BASE)  # the base is in every pair
    of_pairs = replace(own, value=2 * own.value)
    return Scatter(common=common, of_base=of_base, of_pairs=of_pairs, is_paired=True)


def _of_others(cells: Sequence[Floats]) -> CommonVariance:
    """Return the variance that cells lend to two of them: as certain as the others make it."""
    others = sum(len(own) - 1 for own in cells[2:])
    return common_variance(cells, most_freedom=min(MOST_LENT, max(others, 1)))


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


def _contrast(
    base: Sequence[Replicate], arm: Sequence[Replicate], steps: Contrast | None, of_loss: bool,
    scatter: Scatter,
) -> Contrast:  # fmt: skip
    if by_round := _by_rounds(base, arm):
        return by_round
    counts = len(base), len(arm)
    if counts == (1, 1):
        if steps is not None:
            return with_nodes(steps, base, arm)
        return Contrast(mean=None, why="one run a side without an interval of its own")
    if 1 in counts:
        return refused(f"one run against {max(counts)}: run both equally often")
    if min(counts) < FEWEST:
        return Contrast(
            mean=Mean(value=mean_log(arm) - mean_log(base)),
            unit="repeat",
            n=min(counts),
            why=f"{min(counts)} runs a side: a claim about arms needs {FEWEST}",
        )
    paired = _by_pairs(base, arm, of_loss, scatter)
    if of_loss:
        return with_nodes(paired or welch_of(base, arm, scatter), base, arm)
    return paired or by_repeats(base, arm, scatter)


def _by_name(arm: Sequence[Replicate], of_loss: bool) -> dict[Hashable, Replicate]:
    """Return the runs of an arm by what they may share with others: their seed, or their pass."""
    named = {(run.seed if of_loss else run.study_pass): run for run in reversed(arm)}
    return {name: run for name, run in named.items() if name is not None}


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
            mean=Mean(value=mean_log(arm) - mean_log(base)),
            unit="round",
            n=len(shared),
            why=f"{len(shared)} rounds in common: a claim needs {FEWEST}",
        )
    gaps = np.array([sides[1][name] - sides[0][name] for name in shared])
    where = " and ".join(sorted(frozenset[str]().union(*(run.nodes for run in (*base, *arm)))))
    return Contrast(
        mean=one_sample(gaps),
        unit="round",
        n=len(gaps),
        is_claim=True,
        remarks=(f"on {where}",) if where else (),
    )


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
        mean=one_sample(gaps, lent=scatter.of_pairs),
        unit="seed" if of_loss else "pass",
        n=len(pairs),
        is_claim=True,
        further=tuple(map(one_sample, stretches)),
    )
    return of_some(found, len(pairs), len(pairs), base, arm)


def _further(a: Replicate, b: Replicate) -> list[float]:
    return [after - before for before, after in zip(a.stretches, b.stretches, strict=True)]


def scatter_of_single(contrasts: Sequence[Contrast]) -> CommonVariance:
    """Return what a run of a cell is allowed to scatter by, from contrasts with one base.

    If the single runs of all cells lie within little more, they may be no more than scatter.
    """
    logs = [one.mean.value for one in contrasts if one.mean and one.unit in ("step", "run")]
    if len(logs) + 1 < FEWEST_SINGLE:
        return RUN_SCATTER
    _, sigma = robust(np.array([0.0, *logs]))
    if sigma > MOST_SCATTER or sigma**2 <= RUN_SCATTER.value:
        return RUN_SCATTER
    return CommonVariance(value=sigma**2, freedom=EFFICIENCY_OF_MAD * len(logs))


def of_cells(
    found: Contrast, quantity: Quantity, *, scatter: CommonVariance = RUN_SCATTER
) -> Contrast:
    """Return the contrast of two single runs as one of their cells, with an allowance for runs.

    Speeds on nodes of their own get the one for nodes. What agrees within the margin stays: runs of
    one seed have the same losses.
    """
    if found.unit not in ("step", "run") or found.mean is None or found.mean.error is None:
        return found
    if found.further and all(m.is_within(quantity.margin) for m in (found.mean, *found.further)):
        return found
    if quantity.is_speed and NODES_DIFFER in found.remarks and scatter.value < NODES.value:
        scatter = NODES
    each = math.sqrt(scatter.value)
    remark = f"one run each, {ALLOWED} {each:.0%} each"
    remark += ", as these cells scatter" if scatter not in (RUN_SCATTER, NODES) else ""
    widened = found.mean.allowing(each, freedom=scatter.freedom)
    return replace(found, mean=widened, unit="run", n=1, remarks=(*found.remarks, remark))
