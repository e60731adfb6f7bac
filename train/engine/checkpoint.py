"""Checkpoints of the whole training state, written with torch.distributed.checkpoint (DCP).

No random state is stored: every random number is a function of the seed and of `images`
(train/diffusion/rng.py), so any number of ranks can resume from a checkpoint.
"""

import concurrent.futures
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.stateful import Stateful
from torch.optim import Optimizer

from configs.errors import ConfigError
from train.engine.checkpoint_files import (
    CheckpointWriter,
    damaged_files,
    discard_partial,
    first_cause,
    newest_first,
    quarantine,
    step_name,
)
from train.engine.clocks import Clocks
from train.engine.distributed import from_every_rank, from_rank_0
from train.engine.failure import RunFailure
from train.engine.metrics import IntervalSums, log
from train.engine.part import Part
from train.engine.unpickler import CheckpointReader, load_tensors


class CheckpointState(Stateful):
    """Weights, moments, state of parts, progress, clocks and interval, all as tensors.

    `interval` holds the sums of the steps that the next scheduled record will report.
    """

    def __init__(
        self,
        *,
        network: nn.Module,
        parts: Sequence[Part],
        optimizer: Optimizer,
        clocks: Clocks,
    ) -> None:
        self._network, self._parts = network, parts
        self._optimizer, self._clocks = optimizer, clocks
        self.step = 0
        self.images = 0
        self.interval = IntervalSums()

    def state_dict(self) -> dict[str, Any]:
        """Return the state by parameter name, which is the same for every layout over ranks."""
        parameters = dict(self._network.named_parameters())
        beside = {name: p for part in self._parts for name, p in part.parameters().items()}
        return {
            "network": {name: parameter.detach() for name, parameter in parameters.items()},
            "optimizer": {n: self._moments(p) for n, p in (parameters | beside).items()},
            **{name: parameter.detach() for name, parameter in beside.items()},
            **{name: value for part in self._parts for name, value in part.state().items()},
            "progress": _numbers({"step": self.step, "images": self.images}),
            "clocks": _numbers(self._clocks.seconds),
            "interval": _numbers(asdict(self.interval)),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the numbers; DCP has filled the tensors of `state_dict` in place."""
        self.step = int(state["progress"]["step"])
        self.images = int(state["progress"]["images"])
        for name, seconds in state["clocks"].items():
            self._clocks.seconds[name] += float(seconds)
        sums = state["interval"]
        self.interval = IntervalSums(loss=float(sums["loss"]), steps=int(sums["steps"]))

    def _moments(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        """Return AdamW's state of a parameter; before the first step, create it as AdamW does."""
        state = self._optimizer.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return {name: tensor.detach() for name, tensor in state.items()}


def _numbers(values: Mapping[str, float]) -> dict[str, Tensor]:
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}


@dataclass(frozen=True, kw_only=True)
class SavedCheckpoint:
    """A checkpoint that is complete and installed."""

    step: int
    images: int


def has_pinned_memory() -> bool:
    """Return whether host memory can be pinned: whether there is a GPU that copies from it."""
    return torch.cuda.is_available()


class CheckpointSaver:
    """Saves the state of all ranks, one at a time; `asynchronous` ones while training goes on."""

    def __init__(
        self,
        folder: Path,
        *,
        keep: int,
        asynchronous: bool = False,
        is_superseded: Callable[[], bool] = lambda: False,
    ) -> None:
        self._folder, self._keep, self._is_superseded = folder, keep, is_superseded
        # A group of its own keeps the messages of the writing thread apart from the loop's.
        self._group: Any = dist.new_group(backend="gloo") if asynchronous else None
        # One pinned copy of the state, kept: to copy to new pageable memory takes a GPU seconds.
        self._staging: dict[str, Any] = {}
        if asynchronous and has_pinned_memory():
            self._staging = {"async_stager": BlockingAsyncStager(cache_staged_state_dict=True)}
        self._pending: tuple[concurrent.futures.Future[object], SavedCheckpoint] | None = None
        self._finished: list[SavedCheckpoint] = []

    def save(self, state: CheckpointState) -> None:
        """Save `state` as the newest checkpoint, or begin to. Collective."""
        self.wait()
        name, saved = step_name(state.step), SavedCheckpoint(step=state.step, images=state.images)
        writer = CheckpointWriter(
            self._folder, name, keep=self._keep, is_superseded=self._is_superseded
        )
        with self._cleans_up():
            _on_rank_0(writer.prepare)
            if self._group is None:
                dcp.save({"training": state}, storage_writer=writer)
                self._finished.append(saved)
                return
            begun = dcp.async_save(
                {"training": state},
                storage_writer=writer,
                process_group=self._group,
                **self._staging,
            )
        assert isinstance(begun, concurrent.futures.Future)
        self._pending = begun, saved

    def finished(self) -> list[SavedCheckpoint]:
        """Return the checkpoints installed since the last call; raise if a save failed."""
        if self._pending and self._pending[0].done():
            self.wait()
        finished, self._finished = self._finished, []
        return finished

    def abandon(self) -> None:
        """Wait for the save in progress and ignore its result."""
        with contextlib.suppress(Exception):
            self.wait()

    def wait(self) -> None:
        """Wait for the save in progress; raise if it failed."""
        if self._pending is None:
            return
        (begun, saved), self._pending = self._pending, None
        with self._cleans_up():
            begun.result()
        self._finished.append(saved)

    @contextlib.contextmanager
    def _cleans_up(self) -> Iterator[None]:
        """If a save fails, delete its files (the disk may be full), then raise the cause."""
        try:
            with first_cause():
                yield
        except Exception:
            if dist.get_rank() == 0 and not self._is_superseded():
                with contextlib.suppress(OSError):
                    discard_partial(self._folder)
            raise


def _on_rank_0(act: Callable[[], None]) -> None:
    """Call `act` on rank 0 while the others wait; raise its `OSError` on every rank."""
    error: tuple[Any, ...] | None = None
    if dist.get_rank() == 0:
        try:
            act()
        except OSError as met:
            error = (met.errno, met.strerror, met.filename and str(met.filename))
    error = from_rank_0(error)
    if error is not None:
        raise OSError(*error)


def load_newest(folder: Path, state: CheckpointState) -> bool:
    """Load the newest undamaged checkpoint into `state`; return False if there is none."""
    name = agree_on_newest(folder)
    if name is not None:
        load_checkpoint(folder / name, state)
    return name is not None


def load_checkpoint(checkpoint: Path, state: CheckpointState) -> None:
    """Load one checkpoint into `state`."""
    with first_cause():
        load_tensors({"training": state}, checkpoint)


def agree_on_newest(folder: Path) -> str | None:
    """Return the name of the newest undamaged checkpoint, or None if none was saved. Collective.

    The ranks share the checking. A damaged checkpoint is quarantined, and the one before it is
    checked. Raise `RunFailure` if all are damaged.
    """
    names = from_rank_0(newest_first(folder) if dist.get_rank() == 0 else None)
    for name in names:
        damaged = _damaged_files(folder / name)
        if not damaged:
            return str(name)
        log.warning("%s is damaged (%s): passed over", folder / name, ", ".join(damaged))
        _on_rank_0(lambda: quarantine(folder / name))  # noqa: B023
    if names:
        raise RunFailure("disk", f"{folder}: all checkpoints are damaged; delete it to start over")
    return None


def _damaged_files(checkpoint: Path) -> list[str]:
    """Return the damaged files of a checkpoint; the ranks share the checking. Collective."""
    share = damaged_files(checkpoint, part=dist.get_rank(), parts=dist.get_world_size())
    return [file for files in from_every_rank(share) for file in files]


def refuse_damaged(checkpoint: Path) -> None:
    """Raise `ConfigError` if a checkpoint is damaged. Collective."""
    if damaged := _damaged_files(checkpoint):
        raise ConfigError(
            f"{checkpoint} is damaged ({', '.join(damaged)}); delete it to use the one before"
        )


def load_weights(
    folder: Path, network: nn.Module, *, which: str = "ema", step: int | None = None
) -> tuple[int, int]:
    """Load the `ema` or `model` weights of a checkpoint; return its step and images. Collective.

    `step` None means the newest checkpoint. If the run keeps no EMA, its weights are loaded.
    Raise `ConfigError` if there is no such checkpoint, or if it is damaged.
    """
    names = from_rank_0(newest_first(folder) if dist.get_rank() == 0 else None)
    if not names:
        raise ConfigError(f"{folder}: no checkpoint yet; train the run first")
    name = names[0] if step is None else step_name(step)
    if name not in names:
        raise ConfigError(f"{folder}: no checkpoint {name}; there are {', '.join(sorted(names))}")
    refuse_damaged(folder / name)
    read_weights(folder / name, network, which=which)
    return load_progress(folder / name)


def load_progress(checkpoint: Path) -> tuple[int, int]:
    """Return the step and images of a checkpoint. Collective."""
    progress = _numbers({"step": 0, "images": 0})
    load_tensors({"training": {"progress": progress}}, checkpoint)
    return int(progress["step"]), int(progress["images"])


def read_weights(checkpoint: Path, network: nn.Module, *, which: str) -> None:
    """Load the `ema` or `model` weights of one checkpoint into a network of any sharding."""
    weights = {name: parameter.detach() for name, parameter in network.named_parameters()}
    keys = CheckpointReader(checkpoint).read_metadata().state_dict_metadata
    has_average = any(key.startswith("training.average.") for key in keys)
    part = "average" if which == "ema" and has_average else "network"
    with first_cause():
        load_tensors({"training": {part: weights}}, checkpoint)
