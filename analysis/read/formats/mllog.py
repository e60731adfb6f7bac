"""MLPerf logs: `:::MLLOG {json}` lines with anything before the token."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from analysis.read.formats.trainer import as_numbers
from analysis.read.names import column_of
from analysis.read.run_log import Ints
from analysis.read.text.batch import Format
from analysis.read.text.chunks import Chunk, chunks

_LINE = re.compile(rb":::MLL(?:OG)?\s+(\{[^\r\n]*\})")
# Keys that say what a run was, not how it went.
FACTS = frozenset([
    "global_batch_size", "seed", "submission_org", "submission_benchmark", "submission_platform",
    "number_of_ranks", "number_of_nodes", "accelerators_per_node", "gradient_accumulation_steps",
])  # fmt: skip


def _read(text: bytes) -> list[tuple[int, dict[str, float]]]:
    found = ((match.start(), _values(match[1])) for match in _LINE.finditer(text))
    return [(place, values) for place, values in found if values]


def _values(text: bytes) -> dict[str, float]:
    """The numbers of one entry that has a step or counts samples; empty for others.

    Its `time` is in milliseconds.
    """
    entry = _entry(text)
    if not isinstance(entry.get("key"), str):
        return {}
    metadata = entry.get("metadata")
    about = as_numbers(metadata) if isinstance(metadata, dict) else {}
    step = about.get("step", about.get("step_num", about.get("samples_count")))
    value: Any = entry.get("value")
    measured = as_numbers(value if isinstance(value, dict) else {entry["key"]: value})
    if step is None or not measured or isinstance(value, str) or entry["key"] in FACTS:
        return {}
    found = {column_of(name): number for name, number in measured.items()} | {"step": step}
    if "samples_count" in about:
        found["images"] = about["samples_count"]
    return found | as_numbers({"time": entry.get("time_ms")})


def read_header(path: Path, lines: Ints) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What an MLPerf log says of its run (batch, seed, submitter), and its start and stop.

    These stand on the `lines` that `HEADER` matches.
    """
    facts: dict[str, Any] = {}
    events = []
    for chunk in map(Chunk.clean, chunks(path)):
        inside = (lines >= chunk.line) & (lines <= chunk.line + len(chunk.newlines))
        for line in np.unique(lines[inside]).tolist():
            match = _LINE.search(chunk.text(line))
            entry = _entry(match[1]) if match else {}
            key, value, ms = entry.get("key"), entry.get("value"), entry.get("time_ms")
            if key in FACTS and isinstance(value, int | float | str):
                facts.setdefault(str(key), value)
            times = as_numbers({"time": ms}) if key in ("run_start", "run_stop") else {}
            for time in times.values():
                event = {"time": time / 1e3, "attempt": 1, "event": _event(entry)}
                events.append(event | {"line": line})
    return facts, events


def _event(entry: dict[str, Any]) -> str:
    """`started`, or how the run says it stopped."""
    if entry["key"] == "run_start":
        return "started"
    metadata = entry.get("metadata")
    status = metadata.get("status") if isinstance(metadata, dict) else None
    return "done" if status == "success" else "stopped"


def _entry(text: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(text.decode("latin-1"))
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}


HEADER = Format(
    name="MLPerf header",
    token=b":::MLL",
    pattern=re.compile(
        rb'"key"\s*:\s*"(?:run_start|run_stop|%s)"' % b"|".join(sorted(map(str.encode, FACTS)))
    ),
    fields={},
    has_stamps=False,
)
MLLOG = Format(name="MLPerf", token=b":::MLL", read=_read, per={"time": 1e3})
