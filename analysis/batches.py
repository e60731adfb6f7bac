"""The samples that runs of each global batch took: from tables, or from runs to a target."""

import csv
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from analysis.noise import Floats
from analysis.quality import arrival, parse_target
from analysis.read import Unreadable
from analysis.read.find import read_logs

COLUMNS = ("global_batch", "samples")


def read_batches(tables: Iterable[Path]) -> dict[int, Floats]:
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

    A run that began from another's weights counts from there.
    """
    try:
        wanted = parse_target(target)
    except ValueError as error:
        raise Unreadable(f"--target {error}") from None
    found: dict[int, list[float]] = defaultdict(list)
    left = []
    for log in read_logs(paths):
        batch = (log.config or {}).get("train.global_batch")
        if type(batch) is not int:
            left.append(f"left out: {log.name}: its global batch is not known")
            continue
        try:
            met = arrival(log, wanted)
        except Unreadable as error:
            left.append(f"left out: {error}")
            continue
        if met is None:
            left.append(
                f"left out: {log.name} never reached {target}, which makes B_crit too large"
            )
        else:
            found[batch].append(met.images)
    return {batch: np.array(seen) for batch, seen in sorted(found.items())}, left
