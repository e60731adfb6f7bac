"""MLPerf logs: `:::MLLOG {json}` lines with anything before the token."""

import json
import re
from typing import Any

import numpy as np

from analysis.read.batch import Batch, Format, from_matches
from analysis.read.chunks import Chunk
from analysis.read.names import column_of
from analysis.read.trainer import as_numbers

_LINE = re.compile(rb":::MLL(?:OG)?\s+(\{[^\r\n]*\})")


def _read(chunk: Chunk) -> Batch | None:
    kept = []
    for match in _LINE.finditer(chunk.data):
        values = _values(match[1])
        if values:
            kept.append((match, values))
    if not kept:
        return None
    names = dict.fromkeys(name for _, values in kept for name in values)
    columns = {name: np.array([values.get(name, np.nan) for _, values in kept]) for name in names}
    return from_matches(chunk, [match for match, _ in kept], columns)


def _values(text: bytes) -> dict[str, float]:
    """The numbers of one entry that has a step or counts samples; empty for others."""
    try:
        entry = json.loads(text.decode("latin-1"))
    except (ValueError, RecursionError):
        return {}
    if not isinstance(entry, dict) or not isinstance(entry.get("key"), str):
        return {}
    metadata = entry.get("metadata")
    about = as_numbers(metadata) if isinstance(metadata, dict) else {}
    step = about.get("step", about.get("step_num", about.get("samples_count")))
    value: Any = entry.get("value")
    measured = as_numbers(value if isinstance(value, dict) else {entry["key"]: value})
    if step is None or not measured or isinstance(value, str):
        return {}
    found = {column_of(name): number for name, number in measured.items()} | {"step": step}
    if "samples_count" in about:
        found["images"] = about["samples_count"]
    milliseconds = as_numbers({"time": entry.get("time_ms")})
    return found | {name: ms / 1e3 for name, ms in milliseconds.items()}


MLLOG = Format(name="MLPerf", token=b":::MLL", read=_read)
