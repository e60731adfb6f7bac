"""What a run says while it trains: one dict per record, to the file, TensorBoard and console."""

import logging
import sys
import time
from pathlib import Path
from typing import Any

from configs.run.folder import RunFolder
from configs.run.records import Record, RecordWriter

log = logging.getLogger("train")


def start_logging(attempt: Path, *, rank: int, console_ranks: list[int]) -> None:
    """Every rank logs to its own file in the attempt; the chosen ones to the console too."""
    folder = attempt / "ranks"
    folder.mkdir(exist_ok=True)
    to_file = logging.FileHandler(folder / f"rank-{rank:05d}.log", encoding="utf-8")
    to_file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    console = logging.StreamHandler(sys.stdout)
    prefix = f"[rank {rank}] " if len(console_ranks) > 1 else ""
    console.setFormatter(logging.Formatter(f"{prefix}%(message)s"))
    console.setLevel(logging.INFO if rank in console_ranks else logging.ERROR)
    for earlier in log.handlers:
        earlier.close()
    log.handlers = [to_file, console]
    log.setLevel(logging.INFO)
    log.propagate = False


class MetricsLogger:
    """Records on rank 0, console lines on every rank."""

    def __init__(self, run: RunFolder, *, attempt: int, rank: int, tensorboard: bool) -> None:
        self._writer = RecordWriter(run.path, attempt=attempt) if rank == 0 else None
        self._board = None
        if rank == 0 and tensorboard:
            # Imported where wanted: it costs half a second.
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(run.tensorboard))

    def step(self, fields: dict[str, Any], *, steps: int) -> None:
        """Record a training step (or the interval that ends with it)."""
        self._record(fields)
        log.info(console_line(fields, steps=steps))

    def evaluation(self, fields: dict[str, Any]) -> None:
        """Record what was evaluated."""
        self._record(fields)
        log.info(_details(fields))

    def measurement(self, fields: dict[str, Any]) -> None:
        """Record what is too long for a console."""
        self._record(fields)

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
                _to_board(self._board, record)


class ArrivalLog:
    """When this rank came to the point of a step where ranks wait for each other, in seconds.

    One line for each recorded step in `ranks/arrivals-00000.jsonl` of the attempt.
    """

    def __init__(self, attempt: Path, *, rank: int) -> None:
        self._file = (attempt / "ranks" / f"arrivals-{rank:05d}.jsonl").open("a", encoding="utf-8")
        self._time = 0.0

    def note(self) -> None:
        """It is there."""
        self._time = time.time()

    def write(self, step: int) -> None:
        """Keep the time last noted as that of `step`."""
        print(f'{{"step": {step}, "time": {self._time:.6f}}}', file=self._file, flush=True)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def console_line(fields: dict[str, Any], *, steps: int) -> str:
    """A record as a person reads it while waiting."""
    step = fields["step"]
    done = f"step {step:>{len(str(steps))}}/{steps}"
    shown = [name for name in ("loss", "lr", "grad_norm", "gpu_gb") if fields.get(name) is not None]
    body = "  ".join(f"{name} {_short(fields[name])}" for name in shown)
    return f"{done}  {body}  train {fields['train_s']:.1f} s"


def _details(fields: dict[str, Any]) -> str:
    """Fields for a person, who has the clocks in the lines of the steps."""
    shown = {name: value for name, value in fields.items() if not name.endswith("_s")}
    return "  ".join(f"{name} {_short(value)}" for name, value in shown.items())


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _to_board(board: Any, record: Record) -> None:
    for name, value in record.items():
        if name not in ("time", "attempt", "step") and isinstance(value, (int, float)):
            board.add_scalar(name, value, global_step=record["step"], walltime=record["time"])
