"""Checkpoints of the whole training state, by torch.distributed.checkpoint.

Nothing random is stored: every draw is a function of the seed and of `images`
(train/diffusion/rng.py), so a checkpoint can be taken up by any number of ranks.
"""

import concurrent.futures
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.stateful import Stateful
from torch.optim import AdamW

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
from train.engine.ema import EMA
from train.engine.failure import RunFailure
from train.engine.metrics import log
from train.engine.numerics import LossScaler


class CheckpointState(Stateful):
    """Weights, their average, moments, progress, loss scale and clocks: tensors alone."""

    def __init__(
        self,
        *,
        network: nn.Module,
        ema: EMA,
        optimizer: AdamW,
        scaler: LossScaler,
        clocks: Clocks,
    ) -> None:
        self._network, self._ema = network, ema
        self._optimizer, self._scaler, self._clocks = optimizer, scaler, clocks
        self.step = 0
        self.images = 0

    def state_dict(self) -> dict[str, Any]:
        """Everything by the parameters' names, which no layout over ranks changes."""
        parameters = dict(self._network.named_parameters())
        clocks = {name: _number(seconds) for name, seconds in self._clocks.seconds.items()}
        return {
            "network": {name: parameter.detach() for name, parameter in parameters.items()},
            "average": self._ema.weights,
            "optimizer": {name: self._moments(p) for name, p in parameters.items()},
            "progress": {"step": _number(self.step), "images": _number(self.images)},
            "loss_scale": {
                "value": _number(self._scaler.value),
                "good": _number(self._scaler.good),
            },
            "clocks": clocks,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up the numbers; the tensors of `state_dict` were filled in place."""
        self.step = int(state["progress"]["step"])
        self.images = int(state["progress"]["images"])
        self._scaler.value = float(state["loss_scale"]["value"])
        self._scaler.good = int(state["loss_scale"]["good"])
        for name, seconds in state["clocks"].items():
            self._clocks.seconds[name] += float(seconds)

    def _moments(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        """AdamW's state of a parameter, made as AdamW makes it where no step was taken yet."""
        state = self._optimizer.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return {name: tensor.detach() for name, tensor in state.items()}


def _number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


@dataclass(frozen=True, kw_only=True)
class SavedCheckpoint:
    """A checkpoint that is whole and in place."""

    step: int
    images: int


class CheckpointSaver:
    """Saves the state of all ranks, now or while training goes on; at most one is under way."""

    def __init__(
        self,
        folder: Path,
        *,
        keep: int,
        asynchronous: bool = False,
        is_superseded: Callable[[], bool] = lambda: False,
    ) -> None:
        self._folder, self._keep, self._is_superseded = folder, keep, is_superseded
        # Its own group: the thread that writes must not mix its messages with the loop's.
        self._group: Any = dist.new_group(backend="gloo") if asynchronous else None
        self._pending: tuple[concurrent.futures.Future[object], SavedCheckpoint] | None = None
        self._finished: list[SavedCheckpoint] = []

    def save(self, state: CheckpointState) -> None:
        """Save `state` as the newest checkpoint; every rank must."""
        self.wait()
        name, saved = step_name(state.step), SavedCheckpoint(step=state.step, images=state.images)
        writer = CheckpointWriter(
            self._folder, name, keep=self._keep, is_superseded=self._is_superseded
        )
        with self._room_given_back():
            _on_rank_0(writer.prepare)
            if self._group is None:
                dcp.save({"training": state}, storage_writer=writer)
                self._finished.append(saved)
                return
            begun = dcp.async_save(
                {"training": state}, storage_writer=writer, process_group=self._group
            )
        assert isinstance(begun, concurrent.futures.Future)
        self._pending = begun, saved

    def finished(self) -> list[SavedCheckpoint]:
        """Checkpoints that came into place since this was last asked; raises what failed."""
        if self._pending and self._pending[0].done():
            self.wait()
        finished, self._finished = self._finished, []
        return finished

    def abandon(self) -> None:
        """Wait for the save that is under way, and care no more for what becomes of it."""
        with contextlib.suppress(Exception):
            self.wait()

    def wait(self) -> None:
        """Wait for the save that is under way."""
        if self._pending is None:
            return
        (begun, saved), self._pending = self._pending, None
        with self._room_given_back():
            begun.result()
        self._finished.append(saved)

    @contextlib.contextmanager
    def _room_given_back(self) -> Iterator[None]:
        """Raise what a save met; a full disk is not left fuller by the half of a checkpoint."""
        try:
            with first_cause():
                yield
        except Exception:
            if dist.get_rank() == 0 and not self._is_superseded():
                with contextlib.suppress(OSError):
                    discard_partial(self._folder)
            raise


def _on_rank_0(act: Callable[[], None]) -> None:
    """Let rank 0 act, the others wait for it; all of them raise what it met."""
    error: object = None
    if dist.get_rank() == 0:
        try:
            act()
        except OSError as met:
            error = met
    error = from_rank_0(error)
    if isinstance(error, OSError):
        raise error


def load_newest(folder: Path, state: CheckpointState) -> bool:
    """Load the newest whole checkpoint into `state`; False where there is none."""
    name = agree_on_newest(folder)
    if name is not None:
        load_checkpoint(folder / name, state)
    return name is not None


def load_checkpoint(checkpoint: Path, state: CheckpointState) -> None:
    """Load one checkpoint into `state`."""
    with first_cause():
        dcp.load({"training": state}, checkpoint_id=checkpoint)


def agree_on_newest(folder: Path) -> str | None:
    """The newest checkpoint whose files are as they were written; None where none was saved.

    Ranks share the checking; one that is damaged is set aside, and the one before is looked at.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    names = from_rank_0(newest_first(folder) if rank == 0 else None)
    assert isinstance(names, list)
    for name in names:
        found = from_every_rank(damaged_files(folder / name, part=rank, parts=world))
        damaged = [file for files in found for file in files]  # type: ignore[attr-defined]
        if not damaged:
            return str(name)
        log.warning("%s is damaged (%s): passed over", folder / name, ", ".join(damaged))
        _on_rank_0(lambda: quarantine(folder / name))  # noqa: B023
    if names:
        raise RunFailure("disk", f"{folder}: all checkpoints are damaged; delete it to begin anew")
    return None


def load_weights(
    folder: Path, network: nn.Module, *, which: str = "ema", step: int | None = None
) -> tuple[int, int]:
    """Load the `ema` or `model` weights after `step`, None for the newest; its step and images.

    A run that keeps no average has its weights stand for it. Every rank must call it, in a
    process group: all get the same checkpoint, and share the checking.
    """
    name, damaged = _checked(folder, step)
    if damaged:
        raise ConfigError(
            f"{folder / name} is damaged ({', '.join(damaged)}); delete it to use the one before"
        )
    read_weights(folder / name, network, which=which)
    progress = {"step": _number(0), "images": _number(0)}
    dcp.load({"training": {"progress": progress}}, checkpoint_id=folder / name)
    return int(progress["step"]), int(progress["images"])


def _checked(folder: Path, step: int | None) -> tuple[str, list[str]]:
    """The name of a checkpoint and its damaged files, the same on every rank."""
    rank, world = dist.get_rank(), dist.get_world_size()
    names = cast(list[str], from_rank_0(newest_first(folder) if rank == 0 else None))
    if not names:
        raise ConfigError(f"{folder}: no checkpoint yet; train the run first")
    name = names[0] if step is None else step_name(step)
    if name not in names:
        raise ConfigError(f"{folder}: no checkpoint {name}; there are {', '.join(sorted(names))}")
    damaged = from_every_rank(damaged_files(folder / name, part=rank, parts=world))
    return name, [file for files in cast(list[list[str]], damaged) for file in files]


def read_weights(checkpoint: Path, network: nn.Module, *, which: str) -> None:
    """Load the `ema` or `model` weights of one checkpoint into the network, however sharded."""
    weights = {name: parameter.detach() for name, parameter in network.named_parameters()}
    reader = dcp.FileSystemReader(checkpoint)
    has_average = any(
        key.startswith("training.average.") for key in reader.read_metadata().state_dict_metadata
    )
    part = "average" if which == "ema" and has_average else "network"
    with first_cause():
        dcp.load({"training": {part: weights}}, checkpoint_id=checkpoint)
