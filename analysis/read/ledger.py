"""What became of each line that was read: a metric, an event, known noise, or unknown."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analysis.read.chunks import Chunk

_NOISE = re.compile(
    rb"^\s*$|INFO|WARN|[Ww]arning|DEBUG|^\s*[*=#_-]{3,}|it/s|s/it|B/s\]|%\||OMP_NUM_THREADS|"
    rb"NCCL|torchrun|[Ll]oad(?:ed|ing)|[Ss]av(?:ed|ing)|[Cc]heckpoint|[Dd]ownload|Epoch|epoch|"
    rb"[Pp]arameters|File \"|^\s+[\w^~ ]|:::MLL|srun:|slurm"
)
LONGEST_SAMPLE = 120


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """Counts of one file's lines; they add up. `sample` is the first unknown one."""

    path: Path
    format: str | None
    lines: int
    metrics: int
    events: int
    noise: int
    unknown: int
    sample: str | None = None


@dataclass(kw_only=True)
class Tally:
    """The counts while a file is read."""

    lines: int = 0
    metrics: int = 0
    events: int = 0
    noise: int = 0
    sample: bytes | None = None

    def count(self, chunk: Chunk, metrics: set[int], events: set[int]) -> None:
        """Book the lines of a piece; `metrics` and `events` are line numbers."""
        total = len(chunk.newlines) + (0 if chunk.data.endswith(b"\n") else 1)
        self.lines += total
        self.metrics += len(metrics)
        self.events += len(events - metrics)
        known = np.zeros(total + 1, dtype=bool)
        for number in metrics | events:
            known[min(number - chunk.line, total)] = True
        bounds = np.concatenate([[0], chunk.newlines + 1, [len(chunk.data)]])
        for index in np.flatnonzero(~known[:total]):
            text = chunk.data[bounds[index] : min(bounds[index + 1], bounds[index] + 1000)]
            if _NOISE.search(text):
                self.noise += 1
            elif self.sample is None:
                self.sample = text[:LONGEST_SAMPLE]

    def close(self, path: Path, kind: str | None) -> Ledger:
        """The finished ledger."""
        unknown = self.lines - self.metrics - self.events - self.noise
        sample = self.sample.decode("utf-8", "replace").strip() if self.sample else None
        return Ledger(
            path=path,
            format=kind,
            lines=self.lines,
            metrics=self.metrics,
            events=self.events,
            noise=self.noise,
            unknown=max(0, unknown),
            sample=sample,
        )
