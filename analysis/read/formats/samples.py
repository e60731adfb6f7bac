"""Clock readings in the names of ai-toolkit's samples: `<ms since 1970>__<step>_<number>.jpg`."""

import re
from collections.abc import Iterable
from pathlib import Path

from analysis.read.columns import from_rows
from analysis.read.run_log import RunLog

SAMPLE = re.compile(r"(\d{13})__(\d{9})_(\d+)\.(?:jpe?g|png|webp)")


def is_sample(path: Path) -> bool:
    """Whether a file is named as a sample with its time and step."""
    return SAMPLE.fullmatch(path.name) is not None


def read_samples(paths: Iterable[Path], *, folder: Path, name: str) -> list[RunLog]:
    """The wall clock of a run, from the first sample of each step; `line` counts files."""
    rows: dict[int, tuple[int, dict[str, float]]] = {}
    for number, path in enumerate(sorted(paths), start=1):
        match = SAMPLE.fullmatch(path.name)
        if match:
            time, step = int(match[1]) / 1e3, int(match[2])
            rows.setdefault(step, (number, {"step": float(step), "time": time}))
    return from_rows(list(rows.values()), path=folder, name=name, kind="sample names")
