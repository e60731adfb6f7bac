"""Prune a study: skip cells that need at least the memory that another cell ran out of.

Cell A dominates cell B if B's config differs only in keys that memory does not depend on (`_IDLE`)
and in keys with a more demanding value in B: `_RAISES` and `_LOWERS` (numbers), less activation
checkpointing, or a GPU with no more memory. `train.micro_batch: null` counts as the share of a
rank; cells with `auto` neither prune nor are pruned. Only memory prunes: a crash, a NaN or a lost
node says nothing about another cell. The buffers of NCCL, 0.3 GiB for each dimension of the layout
above 1, are left out of it.

A study whose cells fail alike stops: the cause lies in what they share, such as the code.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from configs.checks.batch import divide
from configs.errors import ConfigError
from configs.gpus import gpu_family
from configs.load import flatten, to_tree
from configs.schema import Pretrain, Run
from runs.folder import RunFolder
from runs.records import Record, Superseded, state
from runs.study_folder import StudyFolder, study_of

_RAISES = frozenset(
    ("train.global_batch", "train.micro_batch", "model.depth", "model.width", "data.size")
)
_LOWERS = frozenset(("layout.shard", "model.patch"))
_IDLE = frozenset(
    (
        "question", "seed", "train.steps", "train.ema_batch", "train.ema_warmup",
        "optimizer.lr", "optimizer.warmup_steps", "optimizer.decay", "optimizer.decay_to",
        "optimizer.decay_shape", "optimizer.momentum", "optimizer.beta1", "optimizer.beta2",
        "optimizer.eps", "optimizer.weight_decay", "train.branch_from",
        "log.every", "log.tensorboard", "log.console_ranks", "checkpoint.every", "checkpoint.keep",
        "resources.hours", "resources.cpus_per_gpu", "resources.memory_gb",
    )
)  # fmt: skip
# The reason of a repeat that is skipped because it can change no verdict (`analysis decide`).
DECIDED = "decided"
_CHECKPOINTING = ("full", "selective", "none")
# Not a key: whether gradients are kept while further micro-batches are computed.
_ACCUMULATES = "accumulates"
# The other reasons can follow from the config of a single cell, or from its node.
_SHARED = frozenset(("config", "crash", "data", "disk", "hang", "nccl"))


def dominates(proof: Run, other: Run) -> bool:
    """Return whether `other` needs at least the memory of `proof`, on a GPU with no more."""
    lower, upper = _demands(proof), _demands(other)
    if lower is None or upper is None or lower.keys() != upper.keys():
        return False
    return all(_at_least(name, upper[name], than=value) for name, value in lower.items())


def _demands(config: Run) -> dict[str, Any] | None:
    """Return the values that memory depends on, by key; None if the batch is not known yet."""
    flat = {name: one for name, one in flatten(to_tree(config)).items() if name not in _IDLE}
    if isinstance(config, Pretrain):
        if config.train.micro_batch == "auto":
            return None
        try:
            layout = divide(config, world=config.resources.world)
        except ConfigError:
            return None
        flat["train.micro_batch"] = layout.micro_batch
        flat["layout.replicate"] = layout.data_ranks
        flat[_ACCUMULATES] = layout.accumulation > 1
    return flat


def _at_least(name: str, value: Any, *, than: Any) -> bool:
    if value == than:
        return True
    if name in _RAISES:
        return bool(value > than)
    if name in _LOWERS:
        return bool(value < than)
    if name == _ACCUMULATES:
        return bool(value)
    if name == "activation_checkpointing.mode":
        return _CHECKPOINTING.index(value) > _CHECKPOINTING.index(than)
    return name == "resources.gpu" and _has_no_more(value, than)


def _has_no_more(gpu: str | None, than: str | None) -> bool:
    """Return whether a GPU type has at most the memory of another; False if one is unknown."""
    one, other = (
        [known.memory_gb for known in gpu_family(name or "").values()] for name in (gpu, than)
    )
    return bool(one and other) and max(one) <= min(other)


def is_out_of_memory(run: RunFolder, last: Record | None) -> bool:
    """Return whether the last event of a run says that its devices have too little memory.

    For ranks without a GPU that is host memory. With a GPU, running out of host memory has other
    causes and proves nothing.
    """
    if last is None or last["event"] != "failed":
        return False
    return last["reason"] == "oom" or (last["reason"] == "host_oom" and _had_no_gpu(run))


def _had_no_gpu(run: RunFolder) -> bool:
    attempts = run.entries()
    placement = attempts[-1].get("placement", []) if attempts else []
    return bool(placement) and not any(rank.get("gpu") for rank in placement)


def prune_after(run: RunFolder, last: Record) -> list[str]:
    """Skip the waiting cells that the end of this one rules out; return their names."""
    study = study_of(run.path)
    if study is None:
        return []
    proof = study.proofs / run.name
    if not is_out_of_memory(run, last):
        proof.unlink(missing_ok=True)
        return []
    study.proofs.mkdir(exist_ok=True)
    proof.touch()
    config = run.config()
    too_large = [other for other in waiting(study) if dominates(config, other.config())]
    message, reason = f"needs at least the memory that {run.name} did not have", last["reason"]
    return [one.name for one in too_large if skip(one, proof=run, reason=reason, message=message)]


def skip_if_ruled_out(run: RunFolder, config: Run) -> bool:
    """Skip a cell that has not begun if another proves that it does not fit."""
    study = study_of(run.path)
    if study is None or run.attempts():
        return False
    for path in sorted(study.proofs.glob("*")):
        proof = RunFolder(study.cell(path.name))
        last = state(proof.records())
        if last is None or proof.path == run.path or not is_out_of_memory(proof, last):
            continue
        message = f"needs at least the memory that {proof.name} did not have"
        if dominates(proof.config(), config):
            return skip(run, proof=proof, reason=last["reason"], message=message)
    return False


def waiting(study: StudyFolder) -> Iterator[RunFolder]:
    """Yield the cells that have not begun."""
    for row in study.rows():
        run = RunFolder(study.cell(row.cell))
        if not run.attempts():
            last = state(run.records())
            if last is not None and last["event"] == "queued":
                yield run


def skip(run: RunFolder, *, proof: RunFolder, reason: str, message: str) -> bool:
    """Record that a cell is skipped for the end of the cell `proof`, unless it has begun."""
    try:
        run.record_event(1, "skipped", reason=reason, proof=proof.name, message=message)
    except Superseded:
        return False
    return True


def proof_of(run: RunFolder) -> Path | None:
    """Return the folder of the cell that ruled out a skipped cell."""
    study, last = study_of(run.path), state(run.records())
    if study is None or last is None or last["event"] != "skipped" or "proof" not in last:
        return None
    return study.cell(str(last["proof"]))


def skip_after_alike(run: RunFolder, last: Record) -> str | None:
    """Skip the waiting cells of a study if the newest `stop_after` ends are failures like `last`.

    Return a sentence that says so, or None. A cell that ends in another way restarts the count;
    `rerun` queues the cells again, whose last event then is no failure.
    """
    study = study_of(run.path)
    most = study.stop_after() if study else None
    if study is None or most is None or last.get("reason") not in _SHARED:
        return None
    newest = _ends(study)[-most:]
    if len(newest) < most or len({_signature(one, end) for one, end in newest}) > 1:
        return None
    first, end = newest[0]
    message = (
        f"the last {most} cells failed alike, first {first.name} ({end['reason']}): "
        f"{end.get('message', '')}; fix that, then: ditbench rerun {study.path}"
    )
    reason = str(end["reason"])
    skipped = [
        one for one in waiting(study) if skip(one, proof=first, reason=reason, message=message)
    ]
    return f"{len(skipped)} waiting cells are skipped: {message}" if skipped else None


def _ends(study: StudyFolder) -> list[tuple[RunFolder, Record]]:
    """Return the cells that are done or failed with their last events, oldest first."""
    runs = [RunFolder(study.cell(row.cell)) for row in study.rows()]
    ends = [(run, last) for run in runs if (last := state(run.records()))]
    ended = [one for one in ends if one[1]["event"] in ("done", "failed")]
    return sorted(ended, key=lambda one: float(one[1]["time"]))


def _signature(run: RunFolder, end: Record) -> tuple[str, str]:
    """Return what equal failures have in common: numbers and the cell's name may differ."""
    message = str(end.get("message", "")).replace(run.name, "CELL")
    return str(end.get("reason", end["event"])), re.sub(r"\d+", "N", message)
