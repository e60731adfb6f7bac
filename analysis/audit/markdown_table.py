"""Check a Markdown table of devices, steps, run times and rates against its own numbers."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from analysis.audit import claims
from analysis.stats.intervals import Estimate
from configs.errors import Unreadable
from configs.files import read_text

COLUMNS: dict[str, Callable[[str], bool]] = {
    "rate": lambda head: bool(re.search(r"rate|per s|/\s*s|it/s|speed(?!up)", head)),
    "steps": lambda head: "step" in head or "iteration" in head,
    "seconds": lambda head: bool(re.search(r"time|seconds|duration", head)),
    "device": lambda head: bool(re.search(r"gpu|device|machine|card|hardware|run|name", head)),
}
_SPEEDUP = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)\s*(?:x|\u00d7)(?![\w\d])")
FALLS = 0.05


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """A line of a table; `rate` in steps/s as printed, `half` a half unit of its last digit."""

    device: str
    steps: float
    seconds: float
    half_s: float
    rate: float | None
    half: float
    line: int


def judged(path: Path) -> list[dict[str, Any]]:
    """Return a row per claim of a YAML file or of the tables of a Markdown page."""
    if not path.is_file():
        raise Unreadable(f"{path}: no such file with claims")
    if path.suffix.lower() in (".md", ".markdown"):
        return judge_markdown(path)
    return [claims.judge(claim) for claim in claims.read_claims(path)]


def judge_markdown(path: Path) -> list[dict[str, Any]]:
    """Check rates against steps / time, rates against each other, and speedups in the text."""
    try:
        text = read_text(path, errors="replace", most=claims.LARGEST_FILE)
    except OSError as error:
        raise Unreadable(f"{path}: cannot be read: {error.strerror}") from None
    rows = read_table(text)
    if not rows:
        raise Unreadable(f"{path}: no table with a device, steps and a run time in it")
    prose = "\n".join(line for line in text.splitlines() if "|" not in line)
    return [*_rates(rows), *_clocks(rows), *_speedups(rows, prose)]


def read_table(text: str) -> list[TableRow]:
    """Return the rows of every table with the required columns."""
    rows: list[TableRow] = []
    places: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        cells = [cell.strip().strip("*`") for cell in line.strip().strip("|").split("|")]
        if "|" not in line:
            places = {}
        elif not places:
            places = _places([cell.lower() for cell in cells])
        elif len(cells) > max(places.values()) and (row := _row(cells, places, number)):
            rows.append(row)
    return rows


def _places(heads: list[str]) -> dict[str, int]:
    """Return the cell of each column, or nothing if device, steps or time is missing."""
    found: dict[str, int] = {}
    for name, fits in COLUMNS.items():
        free = (i for i, head in enumerate(heads) if i not in found.values() and fits(head))
        if (place := next(free, None)) is not None:
            found[name] = place
    return found if {"device", "steps", "seconds"} <= set(found) else {}


def _row(cells: list[str], places: dict[str, int], line: int) -> TableRow | None:
    try:
        steps, _ = claims.parse_value(cells[places["steps"]], quantity="steps")
        seconds, half_s = claims.parse_seconds(cells[places["seconds"]])
        rate, half = None, 0.0
        if "rate" in places:
            rate, half = claims.parse_value(cells[places["rate"]].split()[0], quantity="rate")
    except (Unreadable, IndexError):
        return None
    if steps <= 0 or seconds <= 0:
        return None
    device = cells[places["device"]]
    return TableRow(
        device=device, steps=steps, seconds=seconds, half_s=half_s, rate=rate, half=half, line=line
    )


def _ratio(above: float, below: float, half_above: float, half_below: float) -> Estimate:
    """Return the ratio of two rounded numbers, with the range that rounding allows."""
    return Estimate(
        value=above / below,
        low=(above - half_above) / (below + half_below),
        high=(above + half_above) / max(below - half_below, 1e-12),
    )


def _rates(rows: list[TableRow]) -> Iterator[dict[str, Any]]:
    for row in rows:
        if row.rate is not None:
            text = f"{row.device}, {row.steps:g} steps: {row.rate:g} steps/s"
            found = _ratio(row.steps, row.seconds, 0.0, row.half_s)
            why = f"steps over run time, line {row.line}: an end-to-end rate"
            yield claims.judged_row(text, row.rate, found, why, half=row.half)


def _clocks(rows: list[TableRow]) -> Iterator[dict[str, Any]]:
    """Find rates that fall with the steps: start-up is paid once, so on one clock they cannot."""
    for short, long in combinations(sorted(rows, key=lambda row: row.steps), 2):
        before, after = short.steps / short.seconds, long.steps / long.seconds
        is_pair = short.device == long.device and short.steps < long.steps
        if is_pair and after < before * (1 - FALLS):
            text = f"{long.device}: {long.steps:g} steps are slower per step than {short.steps:g}"
            why = (
                f"two clocks: the rate falls by {1 - after / before:.0%} from line {short.line} to "
                f"line {long.line}; the longer one probably holds what the shorter leaves out "
                "(sampling, saving); one clock for both would be needed"
            )
            yield claims.judged_row(text, after, Estimate(value=before), why, verdict="disagrees")


def _speedups(rows: list[TableRow], prose: str) -> Iterator[dict[str, Any]]:
    """Yield each speedup told in the prose against the ratios of devices at equal steps."""
    for match in _SPEEDUP.finditer(prose):
        value, half = claims.parse_value(match[1], quantity="rate")
        for a, b in combinations(rows, 2):
            if a.device == b.device or a.steps != b.steps:
                continue
            slow, fast = (a, b) if a.seconds >= b.seconds else (b, a)
            text = f"{match[0]}: {fast.device} over {slow.device}, {a.steps:g} steps"
            found = _ratio(slow.seconds, fast.seconds, slow.half_s, fast.half_s)
            why = f"run times of lines {a.line} and {b.line}; one run each"
            yield claims.judged_row(text, value, found, why, half=half)
