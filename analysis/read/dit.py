"""Text logs of DiT, fast-DiT, SiT and REPA: `[time] (step=0000100) Train Loss: 0.1669, ...`."""

import re

from analysis.read.batch import Batch, Format, from_matches, numbers
from analysis.read.chunks import Chunk

_LINE = re.compile(
    rb"\(step=(?P<step>\d{1,18})\)\s*Train Loss(?: \w+)?:\s*(?P<loss>[-+.\w]+)"
    rb"(?:,\s*Train Loss ce:\s*(?P<ce>[-+.\w]+))?"
    rb"(?:,\s*Train Steps/Sec:\s*(?P<rate>[-+.\w]+))?"
)


def _read(chunk: Chunk) -> Batch | None:
    matches = list(_LINE.finditer(chunk.data))
    if not matches:
        return None
    step, loss, ce, rate = zip(*(match.groups() for match in matches), strict=True)
    columns = {
        "step": numbers(step),
        "loss": numbers(loss),
        "loss ce": numbers(ce),
        "steps_per_s": numbers(rate),
    }
    return from_matches(chunk, matches, columns)


DIT = Format(name="DiT", token=b"(step=", read=_read)
