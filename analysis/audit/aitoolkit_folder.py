"""What a folder with nothing but ai-toolkit's own output says of time, and what it cannot say."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from analysis.read.formats.ai_toolkit import SampleSet
from analysis.read.other_logs import is_text, read_folder, walk
from analysis.read.run_log import RunLog
from analysis.read.text.pieces import open_bytes
from configs.errors import Unreadable

# A stretch this many times slower per step than the median one held a pause.
PAUSE_TIMES = 1.5
FEWEST = 3
# A runtime is a clock's where they differ by no more than this share.
TOLERANCE = 0.03
MOST_TURNS = 2
_SKIPPED = b"OOM during training step, skipping batch"


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """The steps between two drawings: what they took, a save included, sampling left out."""

    first: int
    last: int
    seconds: float

    @property
    def step_s(self) -> float:
        """Seconds per step."""
        return self.seconds / (self.last - self.first)


@dataclass(frozen=True, kw_only=True)
class RunPart:
    """Drawings whose steps only grow: one start, or a run and its resumes."""

    drawings: tuple[SampleSet, ...]

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """The steps between drawings."""
        return tuple(
            Stretch(first=a.step, last=b.step, seconds=max(0.0, b.began - a.times[-1]))
            for a, b in pairwise(self.drawings)
            if b.step > a.step
        )

    @property
    def clocks(self) -> dict[str, float]:
        """Seconds by what they hold; times of files and jobs are not among them."""
        if not self.stretches:
            return {}
        first, last = self.drawings[0], self.drawings[-1]
        return {
            "steps alone": sum(stretch.seconds for stretch in self.stretches),
            "with samples on the way": last.times[-1] - first.times[-1],
            "with the first and last samples": last.times[-1] - first.began,
        }


def parts(told: Sequence[SampleSet]) -> list[RunPart]:
    """The drawings cut where the step does not grow."""
    cut: list[list[SampleSet]] = []
    for drawing in told:
        if not cut or drawing.step <= cut[-1][-1].step:
            cut.append([])
        cut[-1].append(drawing)
    return [RunPart(drawings=tuple(members)) for members in cut]


def mixture(told: Sequence[RunPart]) -> list[str]:
    """Signs that a folder holds more than one run; none where it looks like one."""
    signs = []
    turns = [
        (a.drawings[-1].step, b.drawings[0].step, b.drawings[0].times[0]) for a, b in pairwise(told)
    ]
    if len(turns) > MOST_TURNS:
        signs.append(f"steps go back {len(turns)} times: two runs wrote here at the same time")
    else:
        for before, after, time in turns:
            what = (
                "another run, or the same one begun anew"
                if after <= told[0].drawings[0].step
                else "a resume from an older checkpoint, or another run"
            )
            signs.append(f"at {stamp(time)} steps go back from {before} to {after}: {what}")
    every = [drawing for part in told for drawing in part.drawings]
    sizes = sorted({size for drawing in every for size in drawing.sizes})
    if len(sizes) > 1:
        listed = ", ".join(f"{width} x {height}" for width, height in sizes)
        signs.append(f"samples of {len(sizes)} sizes ({listed}): not of one config")
    # The newest set may be unfinished.
    counts = sorted({len(drawing.times) for drawing in every[:-1]})
    if len(counts) > 1:
        signs.append(f"{counts[0]} to {counts[-1]} samples at a step: not of one config")
    return signs


def pauses(part: RunPart) -> list[str]:
    """Stretches so slow that something else than steps went on, or nothing did."""
    told = part.stretches
    if len(told) < FEWEST:
        return []
    usual = float(np.median([stretch.step_s for stretch in told]))
    return [
        f"steps {one.first} to {one.last} took {one.step_s / usual:.1f} times as long as others: "
        f"a pause of about {one.seconds - usual * (one.last - one.first):.0f} s"
        for one in told
        if one.step_s > PAUSE_TIMES * usual
    ]


def skipped_steps(folder: Path) -> list[str]:
    """Steps that ran out of memory and were skipped, as the logs in a folder say, by file."""
    found = []
    for path in walk(folder):
        try:
            if not is_text(path):
                continue
        except Unreadable:
            continue
        with open_bytes(path) as file:
            lines = [number for number, line in enumerate(file, start=1) if _SKIPPED in line]
        if lines:
            found.append(
                f"{path.relative_to(folder)}: {len(lines)} steps skipped for want of memory, the "
                f"first at line {lines[0]}"
            )
    return found


def clock_of(runtime: float, clocks: Sequence[Mapping[str, Any]]) -> str:
    """Which of the clocks a runtime that somebody printed can have come from."""
    if not clocks:
        return "undecidable: samples of two steps at least are needed"
    near = [row for row in clocks if abs(runtime / row["seconds"] - 1) <= TOLERANCE]
    if near:
        return " or ".join(f"{row['clock']} ({row['from']})" for row in near)
    longest, shortest = (end(row["seconds"] for row in clocks) for end in (max, min))
    if runtime > longest:
        return f"longer than all of these by {runtime - longest:.0f} s: with loading, or a job's"
    if runtime < shortest:
        return (
            f"shorter than all of these by {shortest - runtime:.0f} s: a bar's, which pauses for "
            "saves too, or another run's"
        )
    return "none of these, but between them"


def timeline_rows(told: Sequence[RunPart]) -> list[dict[str, Any]]:
    """A row per drawing: when, which step, how long an image took, and the steps before it."""
    rows = []
    for number, part in enumerate(told, start=1):
        before = {stretch.last: stretch for stretch in part.stretches}
        for drawing in part.drawings:
            stretch = before.get(drawing.step)
            rows.append(
                {
                    "part": number if len(told) > 1 else None,
                    "time": stamp(drawing.times[0]),
                    "step": drawing.step,
                    "images": len(drawing.times),
                    "image_s": drawing.image_s,
                    "steps_s": stretch.seconds if stretch else None,
                    "steps_per_s": 1 / stretch.step_s if stretch and stretch.seconds else None,
                }
            )
    return rows


def clock_rows(told: Sequence[RunPart], folder: Path) -> list[dict[str, Any]]:
    """Every clock that the folder has, with the steps that it counts and the rate by it."""
    rows = []
    for number, part in enumerate(told, start=1):
        steps = part.drawings[-1].step - part.drawings[0].step
        of = f", part {number}" if len(told) > 1 else ""
        rows += [
            _clock_row(name, steps, seconds, f"sample names{of}")
            for name, seconds in part.clocks.items()
            if seconds > 0
        ]
    for log in read_folder(folder).logs:
        if log.format == "ai-toolkit database":
            rows += _database_rows(log)
        elif bar := log.last("bar_s"):
            rows.append(_clock_row("steps alone", int(log.step[-1]), bar, f"bar of {log.name}"))
    return rows


def _database_rows(log: RunLog) -> list[dict[str, Any]]:
    """The clock of the loss log: pauses between its steps, taken in and left out."""
    time = log.column("time")
    apart = np.diff(time)
    if len(apart) < FEWEST or np.isnan(apart).any():
        return []
    usual = float(np.median(apart))
    steps = int(log.step[-1] - log.step[0])
    alone = float(apart[apart <= 3 * usual].sum())
    return [
        _clock_row("steps alone", int((apart <= 3 * usual).sum()), alone, log.name),
        _clock_row("with samples on the way", steps, float(time[-1] - time[0]), log.name),
    ]


def _clock_row(name: str, steps: int, seconds: float, source: str) -> dict[str, Any]:
    return {
        "clock": name,
        "from": source,
        "steps": steps,
        "seconds": seconds,
        "steps_per_s": steps / seconds if seconds > 0 else None,
    }


def stamp(time: float) -> str:
    """A time since 1970 as UTC."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S")


def judged(name: str, runtime: float, clocks: Sequence[Mapping[str, Any]], *, parts: int) -> str:
    """A sentence on a runtime; of a mixed folder none can be told."""
    if parts != 1:
        return f"{name}: of {parts} parts nobody can say whose {runtime:g} s these are"
    return f"{name}: {runtime:g} s is {clock_of(runtime, clocks)}"


_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}
_RUNTIME = re.compile(r"([\d.]+)\s*([a-z]*)")


def parse_runtime(text: str) -> float:
    """Seconds of `1744`, `1744s`, `29min` or `0.5h`; ValueError otherwise."""
    match = _RUNTIME.fullmatch(text.strip())
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"{text!r}: expected a runtime such as 1744s, 29min or 0.5h")
    return float(match[1]) * _UNITS[match[2]]
