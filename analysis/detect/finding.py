"""One thing that a detector saw in a run."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was seen, at the step and line of the record that shows it.

    `path` is the file of that line where it is not the run's own.
    """

    kind: str
    step: int
    line: int
    detail: str
    path: Path | None = None
