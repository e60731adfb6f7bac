"""Derive the timeline and the clocks of a folder that holds only ai-toolkit's own output."""

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

# A stretch this many times slower per step than the median contains a pause.
PAUSE_TIMES = 1.5
FEWEST = 3
# A run time belongs to a clock if they differ by at most this share.
TOLERANCE = 0.03
MOST_TURNS = 2
_SKIPPED = b"OOM during training step, skipping batch"


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """The steps between two sets of samples, with their seconds (saves included, sampling not)."""

    first: int
    last: int
    seconds: float

    @property
    def step_s(self) -> float:
        """Seconds per step."""
        return self.seconds / (self.last - self.first)


@dataclass(frozen=True, kw_only=True)
class RunPart:
    """Sets of samples whose steps only grow: one start, or a run and its resumes."""

    drawings: tuple[SampleSet, ...]

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """The steps between sets of samples."""
        return tuple(
            Stretch(first=a.step, last=b.step, seconds=max(0.0, b.began - a.times[-1]))
            for a, b in pairwise(self.drawings)
            if b.step > a.step
        )

    @property
    def clocks(self) -> dict[str, float]:
        """Seconds of each clock that the names of samples give."""
        if not self.stretches:
            return {}
        first, last = self.drawings[0], self.drawings[-1]
        return {
            "steps alone": sum(stretch.seconds for stretch in self.stretches),
            "with samples on the way": last.times[-1] - first.times[-1],
            "with the first and last samples": last.times[-1] - first.began,
        }


def parts(drawings: Sequence[SampleSet]) -> list[RunPart]:
    """Cut the sets of samples where the step does not grow."""
    cut: list[list[SampleSet]] = []
    for drawing in drawings:
        if not cut or drawing.step <= cut[-1][-1].step:
            cut.append([])
        cut[-1].append(drawing)
    return [RunPart(drawings=tuple(members)) for members in cut]


def mixture(found: Sequence[RunPart]) -> list[str]:
    """Return signs that a folder holds more than one run."""
    signs = []
    turns = [
        (a.drawings[-1].step, b.drawings[0].step, b.drawings[0].times[0])
        for a, b in pairwise(found)
    ]
    if len(turns) > MOST_TURNS:
        signs.append(f"steps go back {len(turns)} times: two runs wrote here at the same time")
    else:
        for before, after, time in turns:
            cause = (
                "another run, or the same one started over"
                if after <= found[0].drawings[0].step
                else "a resume from an older checkpoint, or another run"
            )
            signs.append(f"at {stamp(time)} steps go back from {before} to {after}: {cause}")
    every = [drawing for part in found for drawing in part.drawings]
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
    """Return a sentence on each stretch that is too slow to hold steps alone."""
    stretches = part.stretches
    if len(stretches) < FEWEST:
        return []
    usual = float(np.median([stretch.step_s for stretch in stretches]))
    return [
        f"steps {one.first} to {one.last} took {one.step_s / usual:.1f} times as long as others: "
        f"a pause of about {one.seconds - usual * (one.last - one.first):.0f} s"
        for one in stretches
        if one.step_s > PAUSE_TIMES * usual
    ]


def skipped_steps(folder: Path) -> list[str]:
    """Return a sentence per log in a folder on steps that were skipped for lack of memory."""
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
                f"{path.relative_to(folder)}: {len(lines)} steps skipped for lack of memory, the "
                f"first at line {lines[0]}"
            )
    return found


def clock_of(runtime: float, clocks: Sequence[Mapping[str, Any]]) -> str:
    """Return which of the clocks a printed run time can come from."""
    if not clocks:
        return "undecidable: samples of at least two steps are needed"
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


def timeline_rows(found: Sequence[RunPart]) -> list[dict[str, Any]]:
    """Return a row per set of samples: time, step, seconds per image, and the steps before it."""
    rows = []
    for number, part in enumerate(found, start=1):
        before = {stretch.last: stretch for stretch in part.stretches}
        for drawing in part.drawings:
            stretch = before.get(drawing.step)
            rows.append(
                {
                    "part": number if len(found) > 1 else None,
                    "time": stamp(drawing.times[0]),
                    "step": drawing.step,
                    "images": len(drawing.times),
                    "image_s": drawing.image_s,
                    "steps_s": stretch.seconds if stretch else None,
                    "steps_per_s": 1 / stretch.step_s if stretch and stretch.seconds else None,
                }
            )
    return rows


def clock_rows(found: Sequence[RunPart], folder: Path) -> list[dict[str, Any]]:
    """Return a row per clock of the folder, with the steps that it counts and their rate."""
    rows = []
    for number, part in enumerate(found, start=1):
        steps = part.drawings[-1].step - part.drawings[0].step
        of = f", part {number}" if len(found) > 1 else ""
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
    """Return the clocks of the loss log, with and without the pauses between its steps."""
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
    """Return a time since 1970 as text in UTC."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S")


def judged(name: str, runtime: float, clocks: Sequence[Mapping[str, Any]], *, parts: int) -> str:
    """Return a sentence on a run time; a mixed folder has no answer."""
    if parts != 1:
        return f"{name}: {parts} parts, so {runtime:g} s cannot be assigned to one of them"
    return f"{name}: {runtime:g} s is {clock_of(runtime, clocks)}"
