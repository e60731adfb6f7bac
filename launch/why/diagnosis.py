"""Diagnose the end of an attempt: its state by the one fold, and the rank that failed first."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from runs.state.evidence import Evidence
from runs.state.first_failure import first_failure
from runs.state.reasons import Reason, reasons
from runs.state.run_state import RunState
from runs.state.slurm_job import SlurmJob

# The file, the rank and the kind of error in front of a message.
_SOURCE = re.compile(
    r"^.*?: (?:\[[^\]]*\]: ?|rank \d+: |failed [^:]*: |[\w.]+(?:Error|Exception): )*"
)


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The end of an attempt, or of a job that waits, and its reason.

    `process` are its traces, and `state` the state with the reason that the fold found. `start` is
    the start of its job according to Slurm, `now` the job as it is now.
    """

    process: Evidence
    state: RunState
    start: SlurmJob | None = None
    now: SlurmJob | None = None

    @property
    def reason(self) -> Reason | None:
        """The reason of the end, None if the attempt has not ended or the reason is unknown."""
        return None if self.state.reason is None else reasons()[self.state.reason]

    @property
    def has_not_ended(self) -> bool:
        """Whether the attempt may still go on."""
        is_over = self.start is not None and self.start.is_over
        return self.state.is_open and not self.state.is_paused and not is_over

    @cached_property
    def first_failure(self) -> str:
        """The rank that failed first, such as "rank 3 on node-2"; empty if unknown, or none did."""
        return first_failure(self.process, self.reason) if self.reason else ""

    @cached_property
    def lines(self) -> list[str]:
        """The lines that show the reason, with paths from the run, LOGS or this folder."""
        folder, shown = self.process.folder, list(self.state.evidence)
        if self.reason and folder and any(folder.glob("ranks/nccl-*")):
            shown.append(f"collectives: torchfrtrace {folder}/ranks -p nccl-")
        return _without_repeats(self.process, shown)


def _without_repeats(evidence: Evidence, lines: list[str]) -> list[str]:
    """Return the lines that say something new."""
    kept: list[str] = []
    for line in lines:
        for folder in (evidence.run.path, evidence.run.path.parent, Path.cwd()):
            line = line.removeprefix(f"{folder}/")
        said = _SOURCE.sub("", line)[:80]
        if not any(said in other for other in kept):
            kept.append(line)
    return kept
