"""Checkpoints of the whole training state, by torch.distributed.checkpoint.

A checkpoint is written under a temporary name, forced to disk, renamed; `latest` moves last.
So a kill at any moment leaves the older checkpoint or the newer one, never half of one.
Nothing random is stored: every draw is a function of the seed and of `images` (train/draws.py),
so a checkpoint can be taken up by any number of ranks.
"""

import shutil
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.stateful import Stateful
from torch.optim import AdamW

from configs.disk import replace_file, sync_folder
from configs.yaml12 import ConfigError
from train.clocks import Clocks
from train.dist import from_rank_0
from train.ema import Average


class TrainingState(Stateful):
    """Weights, their average, the optimizer's moments, images seen and clocks: tensors alone."""

    def __init__(
        self, *, network: nn.Module, average: Average, optimizer: AdamW, clocks: Clocks
    ) -> None:
        self._network, self._average = network, average
        self._optimizer, self._clocks = optimizer, clocks
        self.step = 0
        self.images = 0

    def state_dict(self) -> dict[str, Any]:
        """Everything by the parameters' names, which no layout over ranks changes."""
        parameters = dict(self._network.named_parameters())
        clocks = {name: _number(seconds) for name, seconds in self._clocks.seconds.items()}
        return {
            "network": {name: parameter.detach() for name, parameter in parameters.items()},
            "average": self._average.average,
            "optimizer": {name: self._moments(p) for name, p in parameters.items()},
            "progress": {"step": _number(self.step), "images": _number(self.images)},
            "clocks": clocks,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up the numbers; the tensors of `state_dict` were filled in place."""
        self.step = int(state["progress"]["step"])
        self.images = int(state["progress"]["images"])
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


def save(folder: Path, state: TrainingState, *, keep: int) -> None:
    """Save the state of all ranks as the newest checkpoint and drop all but `keep`."""
    name = step_name(state.step)
    temporary = folder / f"{name}.partial"
    if dist.get_rank() == 0:
        folder.mkdir(exist_ok=True)
        _discard_partial(folder)
        temporary.mkdir()
    dist.barrier()
    dcp.save({"training": state}, checkpoint_id=temporary)
    if dist.get_rank() == 0:
        _install(folder, temporary, name)
        for old in complete(folder)[:-keep]:
            shutil.rmtree(folder / old)
    dist.barrier()


def load_newest(folder: Path, state: TrainingState) -> bool:
    """Load the newest checkpoint into `state`; False where there is none."""
    name = from_rank_0(newest(folder) if dist.get_rank() == 0 else None)
    if name is None:
        return False
    dcp.load({"training": state}, checkpoint_id=folder / str(name))
    return True


def load_average(folder: Path, network: nn.Module) -> tuple[int, int]:
    """Load the averaged weights of the newest checkpoint; the step and images they are of."""
    name = newest(folder)
    if name is None:
        raise ConfigError(f"{folder}: no checkpoint yet; train the run first")
    average = {name: parameter.detach() for name, parameter in network.named_parameters()}
    progress = {"step": _number(0), "images": _number(0)}
    wanted = {"training": {"average": average, "progress": progress}}
    dcp.load(wanted, checkpoint_id=folder / name)
    return int(progress["step"]), int(progress["images"])


def newest(folder: Path) -> str | None:
    """The name of the checkpoint that `latest` points to, else of the last complete one."""
    found = complete(folder)
    pointer = folder / "latest"
    named = pointer.read_text(encoding="utf-8").strip() if pointer.is_file() else ""
    return named if named in found else (found[-1] if found else None)


def complete(folder: Path) -> list[str]:
    """The names of whole checkpoints, oldest first."""
    if not folder.is_dir():
        return []
    return sorted(entry.name for entry in folder.iterdir() if (entry / ".metadata").is_file()
                  and not entry.name.endswith(".partial"))  # fmt: skip


def step_name(step: int) -> str:
    """The folder name of the checkpoint after `step` steps."""
    return f"step-{step:09d}"


def _install(folder: Path, temporary: Path, name: str) -> None:
    sync_folder(temporary)
    final = folder / name
    if final.exists():  # the same step again, after a resume from an older one
        final.rename(folder / f"{name}.old.partial")
    temporary.rename(final)
    sync_folder(folder)
    replace_file(folder / "latest", f"{name}\n")
    _discard_partial(folder)


def _discard_partial(folder: Path) -> None:
    for entry in folder.glob("*.partial"):
        shutil.rmtree(entry)
