"""Logs of other trainers, written from their own print-outs' forms: the same steps in each."""

import datetime
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.analysis_coverage.folders import START
from benchmarks.analysis_coverage.scenario import Floats


@dataclass(frozen=True, kw_only=True)
class Printed:
    """What a log prints: steps [n], seconds since the start [n] and losses [n] at them."""

    step: Floats
    seconds: Floats
    loss: Floats

    @classmethod
    def of(
        cls, durations: Floats, *, every: int, step_s: float, loss: Floats | None = None
    ) -> "Printed":
        """Return the log of records of relative `durations` [n], after a start of 30 s."""
        n = len(durations)
        return cls(
            step=np.arange(1, n + 1, dtype=np.float64) * every,
            seconds=30 + np.cumsum(durations) * every * step_s,
            loss=0.2 + 0.5 / np.sqrt(np.arange(1, n + 1)) if loss is None else loss,
        )

    @property
    def step_s(self) -> Floats:
        """The mean seconds of the steps since the record before [n]."""
        return np.diff(self.seconds, prepend=30.0) / np.diff(self.step, prepend=0.0)


def _stamp(seconds: float) -> str:
    moment = datetime.datetime.fromtimestamp(START + seconds, datetime.UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"


def dit_text(log: Printed, path: Path) -> None:
    """Write lines of DiT's train.py: stamps in whole seconds, rates with two digits."""
    rows = zip(log.step, log.seconds, log.loss, log.step_s, strict=True)
    path.write_text(
        "".join(
            f"[\x1b[34m{_stamp(t)}\x1b[0m] (step={int(s):07d}) Train Loss: {x:.4f}, "
            f"Train Steps/Sec: {1 / d:.2f}\n"
            for s, t, x, d in rows
        )
    )


def json_lines(log: Printed, path: Path) -> None:
    """Write a JSON object per record, with the time of day."""
    rows = zip(log.step, log.seconds, log.loss, strict=True)
    path.write_text(
        "".join(
            json.dumps({"step": int(s), "loss": float(x), "time": START + float(t)}) + "\n"
            for s, t, x in rows
        )
    )


def csv_table(log: Printed, path: Path) -> None:
    """Write a table with the time of day in milliseconds' resolution."""
    rows = zip(log.step, log.seconds, log.loss, strict=True)
    lines = [f"{int(s)},{x:.6f},{START + t:.3f}" for s, t, x in rows]
    path.write_text("step,loss,wall_time\n" + "\n".join(lines) + "\n")


def progress_bar(log: Printed, path: Path) -> None:
    """Write tqdm's bar, redrawn at each record, with whole seconds."""
    most = int(log.step[-1])
    rows = zip(log.step, log.seconds - 30, log.loss, log.step_s, strict=True)
    bars = [
        f"steps: {int(100 * s / most):3d}%|###       | {int(s)}/{most} "
        f"[{_clock(t)}<{_clock((most - s) * d)}, {1 / d:.2f}it/s, loss={x:.4f}]"
        for s, t, x, d in rows
    ]
    path.write_text("\r".join(bars) + "\n")


def nano_gpt(log: Printed, path: Path) -> None:
    """Write nanoGPT's lines, with the milliseconds of an iteration."""
    rows = zip(log.step, log.loss, log.step_s, strict=True)
    path.write_text(
        "".join(
            f"iter {int(s)}: loss {x:.4f}, time {1000 * d:.2f}ms, mfu 17.00%\n" for s, x, d in rows
        )
    )


def tensorboard(log: Printed, path: Path) -> None:
    """Write an event file by TensorBoard's own messages and record writer."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    with path.open("wb") as file:
        writer = RecordWriter(file)
        first = Event(wall_time=START, file_version="brain.Event:2")
        writer.write(first.SerializeToString())
        for s, t, x in zip(log.step, log.seconds, log.loss, strict=True):
            value: Any = Summary.Value(tag="train/loss", simple_value=float(x))
            event = Event(wall_time=START + float(t), step=int(s), summary=Summary(value=[value]))
            writer.write(event.SerializeToString())
        writer.flush()


@dataclass(frozen=True, kw_only=True)
class Form:
    """A way to write a log, and the name of its file."""

    write: Callable[[Printed, Path], None]
    file: str


FORMS = {
    "DiT text, whole seconds": Form(write=dit_text, file="log.txt"),
    "JSON lines": Form(write=json_lines, file="metrics.jsonl"),
    "CSV": Form(write=csv_table, file="metrics.csv"),
    "progress bar": Form(write=progress_bar, file="bar.log"),
    "nanoGPT text": Form(write=nano_gpt, file="nano.log"),
    "TensorBoard": Form(write=tensorboard, file="events.out.tfevents.1750000000.n1.1.0"),
}


def write_log(folder: Path, form: str, log: Printed) -> Path:
    """Write a log of one form into a folder of its own and return the file."""
    folder.mkdir(parents=True)
    path = folder / FORMS[form].file
    FORMS[form].write(log, path)
    return path
