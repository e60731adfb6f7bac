"""TensorBoard event files: scalars only, read by TensorBoard's own library."""

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from analysis.read.columns import Cells
from analysis.read.formats.structured import log_of_cells
from analysis.read.run_log import RunLog
from analysis.read.vocabulary import is_evaluation
from configs.errors import Unreadable
from configs.files import open_regular

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

LARGEST_FILE = 1 << 31
# The length and the two checksums that stand around a record.
FRAME = 16
_FLOAT, _DOUBLE = 1, 2
# Megatron writes each value a second time over another count.
_OVER = re.compile(r" vs (?:samples|steps|iterations|tokens|time)$")


def looks_like_events(start: bytes) -> bool:
    """Whether a file begins with the version of events, or with a framed event and its time."""
    is_timed = start[4:8] == bytes(4) and start[12:13] == b"\t" and start[20:21] == b"A"
    return is_timed or b"brain.Event:" in start[:64]


def read_events(path: Path, *, name: str) -> list[RunLog]:
    """Return the run in an event file, up to its first damaged record; `line` counts records."""
    # Imported here, because few folders hold such a file.
    from google.protobuf.message import DecodeError
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event

    with open_regular(path, most=LARGEST_FILE) as file:
        size = file.seek(0, 2)
    cells, lines = Cells(), list[int]()
    number, done = 0, 0
    try:
        for number, record in enumerate(RawEventFileLoader(str(path)).Load(), start=1):
            done += len(record) + FRAME
            scalars = _scalars(Event.FromString(record), path.parent.name)
            if len(scalars) > 2:
                cells.add(len(lines), scalars)
                lines.append(number)
    except (DecodeError, ValueError):
        raise Unreadable(f"{path}: record {number} is no event") from None
    except (MemoryError, OverflowError):
        # A length that no file has, with a right checksum.
        pass
    logs = log_of_cells(cells, lines, path=path, name=name, kind="TensorBoard")
    if done == size:
        return logs
    remark = f"{name}: record {number + 1} is damaged or cut short; nothing after it is read"
    return [replace(log, remarks=(remark,)) for log in logs]


def _scalars(event: "Event", folder: str) -> dict[str, float]:
    """Return the `step`, the `time` and the scalars of one event, by tag.

    `add_scalars("loss", {"val": ...})` writes the tag `loss` into a folder `loss_val`; any other
    folder is named by the user.
    """
    found = {"step": float(event.step), "time": event.wall_time}
    for value in event.summary.value:
        scalar = _scalar(value)
        is_named = value.tag not in ("", "step", "time") and not _OVER.search(value.tag)
        if is_named and scalar is not None:
            part = folder.removeprefix(f"{value.tag.replace('/', '_')}_")
            tag = f"{value.tag}/{part}" if part != folder and is_evaluation(part) else value.tag
            found[tag] = scalar if np.isfinite(scalar) else np.inf
    return found


def _scalar(value: "Summary.Value") -> float | None:
    """Return a simple value, or the only element of a float or double tensor, else None."""
    from tensorboard.util.tensor_util import make_ndarray

    if value.HasField("simple_value"):
        return float(value.simple_value)
    tensor = value.tensor
    if tensor.dtype not in (_FLOAT, _DOUBLE) or any(d.size != 1 for d in tensor.tensor_shape.dim):
        return None
    return float(make_ndarray(tensor).item())
