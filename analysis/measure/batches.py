"""The samples that runs of each global batch took: from tables, or from runs to a target."""

import csv
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from analysis.measure.time_to_target import Target, lowest_value, parse_target, time_to_target
from analysis.read.find import read_logs
from analysis.read.run_log import RunLog
from analysis.stats.intervals import Floats
from configs.errors import Unreadable

COLUMNS = ("global_batch", "samples")


def read_sample_tables(tables: Iterable[Path]) -> dict[int, Floats]:
    """Samples of each run by global batch, from csv files with a row per run."""
    found: dict[int, list[float]] = defaultdict(list)
    for path in tables:
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                for row in _rows(csv.DictReader(file), path):
                    found[int(row[0])].append(row[1])
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            why = error.strerror if isinstance(error, OSError) else "not a csv of text"
            if isinstance(error, FileNotFoundError):
                why = "no such file or folder"
            raise Unreadable(f"{path}: {why}") from None
    return {batch: np.array(samples) for batch, samples in sorted(found.items())}


def _rows(reader: "csv.DictReader[str]", path: Path) -> Iterable[tuple[float, float]]:
    missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise Unreadable(f"{path}: has no column {missing[0]}; expected {','.join(COLUMNS)}")
    for row in reader:
        values = []
        for name in COLUMNS:
            try:
                values.append(float(row[name] or ""))
            except ValueError:
                values.append(0.0)
            if not 0 < values[-1] < 1e300:
                raise Unreadable(
                    f"{path}, line {reader.line_num}: {name} {row[name]!r} is no number above 0"
                )
        if values[0] % 1:
            raise Unreadable(f"{path}, line {reader.line_num}: half an image in global_batch")
        yield values[0], values[1]


def samples_to_target(paths: list[str], target: str) -> tuple[dict[int, Floats], list[str]]:
    """Images that runs had seen at a target by global batch, and which runs are left out.

    A run that began from another's weights counts from there. Of a target that is a name alone the
    value is the lowest that every run reached.
    """
    logs = read_logs(paths)
    wanted = _target(target, logs)
    found: dict[int, list[float]] = defaultdict(list)
    left = [f"the target is {wanted.spelled}"] if _is_name(target) else []
    for log in logs:
        batch = (log.config or {}).get("train.global_batch")
        if type(batch) is not int:
            left.append(f"left out: {log.name}: its global batch is not known")
            continue
        try:
            met = time_to_target(log, wanted)
        except Unreadable as error:
            left.append(f"left out: {error}")
            continue
        if met is None:
            left.append(
                f"left out: {log.name} never reached {wanted.spelled}, which makes B_crit too large"
            )
        else:
            found[batch].append(met.images)
    return {batch: np.array(seen) for batch, seen in sorted(found.items())}, left


def _target(text: str, logs: Sequence[RunLog]) -> Target:
    """What was asked for, its value found where a metric alone was named."""
    try:
        if _is_name(text):
            values = [lowest_value(log, text) for log in logs]
            return Target(name=text, sense="<=", value=max(values))
        return parse_target(text)
    except ValueError as error:
        raise Unreadable(f"--target {error}") from None


def _is_name(text: str) -> bool:
    return re.fullmatch(r"\w+", text) is not None
