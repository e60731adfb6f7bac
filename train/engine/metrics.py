"""Metrics of a run: one dict per record, written to the run folder, TensorBoard and the console."""

import logging
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from runs.folder import RunFolder
from runs.records import Record, RecordWriter

log = logging.getLogger("train")


def start_logging(attempt: Path, *, rank: int) -> None:
    """Log to a file per rank in the attempt; rank 0 logs to stdout too, others only errors."""
    folder = attempt / "ranks"
    folder.mkdir(exist_ok=True)
    to_file = logging.FileHandler(folder / f"rank-{rank:05d}.log", encoding="utf-8")
    to_file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    console = logging.StreamHandler(sys.stdout)
    console.setFormatter(logging.Formatter("%(message)s"))
    console.setLevel(logging.ERROR if rank else logging.INFO)
    for earlier in log.handlers:
        earlier.close()
    log.handlers = [to_file, console]
    log.setLevel(logging.INFO)
    log.propagate = False


class MetricsLogger:
    """Writes records on rank 0 and console lines on every rank."""

    def __init__(self, run: RunFolder, *, attempt: int, rank: int, tensorboard: bool) -> None:
        self._writer = RecordWriter(run.path, attempt=attempt) if rank == 0 else None
        self._board = None
        if rank == 0 and tensorboard:
            # Imported only if used: it takes half a second.
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(run.tensorboard))

    def step(self, fields: dict[str, Any], *, steps: int) -> None:
        """Record a training step, or the interval that ends with it."""
        self._record(fields)
        log.info(console_line(fields, steps=steps))

    def evaluation(self, fields: dict[str, Any]) -> None:
        """Record the result of an evaluation."""
        self._record(fields)
        log.info(_details(fields))

    def event(self, name: str, **fields: Any) -> None:
        """Record an event."""
        if self._writer:
            self._writer.event(name, **fields)
        log.info(f"{name}  {_details(fields)}".rstrip())

    def close(self) -> None:
        """Flush and close everything."""
        if self._board:
            self._board.close()
        if self._writer:
            self._writer.close()

    def _record(self, fields: dict[str, Any]) -> None:
        if self._writer:
            record = self._writer.write(**fields)
            if self._board:
                _write_scalars(self._board, record)


@dataclass(frozen=True, kw_only=True)
class IntervalSums:
    """The sum of the losses over `steps` steps and all ranks."""

    loss: float = 0.0
    steps: int = 0

    def mean(self, *, global_batch: int) -> float:
        """Return the mean loss of an image."""
        return self.loss / (self.steps * global_batch)


class LossAccumulator:
    """The losses of this rank since the last scheduled record.

    They are summed on the device in float64. Sums of float32 losses are exact there, so they do
    not depend on the order or on the rank to which a resumed run adds them.
    """

    def __init__(self, device: torch.device) -> None:
        self.loss = torch.zeros((), dtype=torch.float64, device=device)
        self.steps = 0

    def add(self, loss: Tensor) -> None:
        """Add the sum of the losses of one microbatch."""
        self.loss += loss

    def restart(self, sums: IntervalSums, *, rank: int, tensor: int) -> None:
        """Start again at `sums`, which rank 0 holds from now on; `tensor` ranks see each image."""
        share = tensor if rank == 0 else 0
        self.loss.fill_(sums.loss * share)
        self.steps = sums.steps


def wall_time(moment: float) -> float:
    """Return a time of `time.perf_counter` in seconds since 1970."""
    return time.time() - (time.perf_counter() - moment)


def console_line(fields: dict[str, Any], *, steps: int) -> str:
    """Format the record of a step for the console."""
    step = fields["step"]
    done = f"step {step:>{len(str(steps))}}/{steps}"
    shown = [name for name in ("loss", "lr", "grad_norm", "gpu_gb") if fields.get(name) is not None]
    body = "  ".join(f"{name} {_short(fields[name])}" for name in shown)
    return f"{done}  {body}  train {fields['train_s']:.1f} s"


def _details(fields: dict[str, Any]) -> str:
    """Format all scalars but the clocks, which the lines of the steps show."""
    shown = {
        name: value
        for name, value in fields.items()
        if not name.endswith("_s") and not isinstance(value, dict | list)
    }
    return "  ".join(f"{name} {_short(value)}" for name, value in shown.items())


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _write_scalars(board: Any, record: Record) -> None:
    for name, value in record.items():
        if name not in ("time", "attempt", "step") and isinstance(value, (int, float)):
            board.add_scalar(name, value, global_step=record["step"], walltime=record["time"])
