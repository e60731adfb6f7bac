"""Diagnose the end of an attempt: its state by the one fold, and the rank that failed first."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from launch.why.evidence import Ending
from runs.state.evidence import Evidence
from runs.state.first_failure import first_failure
from runs.state.fold import fold
from runs.state.reasons import Reason, reasons
from runs.state.run_state import RunState

# The file, the rank and the kind of error in front of a message.
_SOURCE = re.compile(
    r"^.*?: (?:\[[^\]]*\]: ?|rank \d+: |failed [^:]*: |[\w.]+(?:Error|Exception): )*"
)


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The end of an attempt, or of a job, and its state with the reason that the fold found."""

    ending: Ending
    state: RunState

    @property
    def process(self) -> Evidence:
        """The traces of the attempt."""
        return self.ending.process

    @property
    def reason(self) -> Reason | None:
        """The reason of the end, None if the attempt has not ended or the reason is unknown."""
        return None if self.state.reason is None else reasons()[self.state.reason]

    @property
    def has_not_ended(self) -> bool:
        """Whether the attempt, or the job of none, may still go on."""
        start = self.ending.start
        return self.state.is_open and not self.state.is_paused and not (start and start.is_over)

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


def diagnose(ending: Ending) -> Diagnosis:
    """Return the diagnosis of an attempt, or of a job."""
    state = fold(ending.events, ending.start, ending.process)
    return Diagnosis(ending=ending, state=state)


def _without_repeats(evidence: Evidence, lines: list[str]) -> list[str]:
    """Return the lines that say something new."""
    kept: list[str] = []
    own = (evidence.run.path, evidence.run.path.parent) if evidence.run else ()
    for line in lines:
        for folder in (*own, Path.cwd()):
            line = line.removeprefix(f"{folder}/")
        said = _SOURCE.sub("", line)[:80]
        if not any(said in other for other in kept):
            kept.append(line)
    return kept
