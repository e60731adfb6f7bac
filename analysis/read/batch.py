"""The batch of a step: which log counts images by it, and what may add to it."""

from dataclasses import replace

import numpy as np

from analysis.foreign_keys import kind_of
from analysis.read.run_log import RunLog
from analysis.read.vocabulary import key_of

PART = "the batch may be a part of the whole: --set batch=N says it"
# Words of names beside which a batch may be that of one process, or a part of a step.
_OF_PARTS = frozenset(["rank", "ddp", "fsdp", "distributed", "multi", "multigpu", "micro"])


def counts_parts(name: str) -> bool:
    """Whether a batch beside such a name may be that of one part."""
    words = key_of(name).split()
    return kind_of(name) == "devices" or "accum" in name.lower() or not _OF_PARTS.isdisjoint(words)


def with_batch(log: RunLog, batch: int, *, is_whole: bool = True) -> RunLog:
    """Return a log whose steps have a batch, with the images by it, unless it counts its own.

    `is_whole` says that the batch is named as that of all devices.
    """
    values, evaluations, known = dict(log.values), log.evaluations, log.global_batch
    by_another = log.step * float(known or 0)
    if log.axis == "step" and np.array_equal(values.get("images", by_another), by_another):
        values["images"] = log.step * np.float64(batch)
        evaluations = tuple({**one, "images": one["step"] * float(batch)} for one in evaluations)
    facts = {**log.facts, "global_batch_size" if is_whole else "batch_size": batch}
    return replace(log, facts=facts, values=values, evaluations=evaluations)
