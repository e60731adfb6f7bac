"""Send runs to wandb: only the steps that it lacks.

A run folder is one run of wandb, found again by its name; its metric `step` says how far wandb has
it. An offline run is kept in several folders, which `wandb sync` joins.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.read.run_log import RunLog
from configs.errors import Unreadable
from runs.folder import RunFolder
from runs.records import is_number
from runs.study_folder import study_of

# Says how far an offline run of wandb is, its name and its project, beside its files.
_SENT = "ditbench-step.txt"


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """A run as wandb gets it: metrics by step, samples by step, and the table of verdicts."""

    name: str
    config: Mapping[str, Any]
    rows: Mapping[int, Mapping[str, float]]
    samples: Mapping[int, Mapping[str, Path]]
    verdicts: Sequence[Mapping[str, Any]]

    def after(self, last: float | None) -> list[int]:
        """Return the steps beyond the newest one that wandb has."""
        return [step for step in self.rows if last is None or step > last]


def is_unfinished(log: RunLog) -> bool:
    """Whether a run may still go on."""
    return log.state.is_open and log.state.has_events


def tracked(log: RunLog, verdicts: Sequence[Mapping[str, Any]]) -> TrackedRun:
    """Return a run with its attempts joined and its evaluations in the rows of their steps.

    The newest step of an unfinished run waits, since its evaluations may follow.
    """
    rows: dict[int, dict[str, float]] = {}
    for place, step in enumerate(log.step.tolist()):
        row = {name: float(column[place]) for name, column in log.values.items()}
        rows[step] = {"step": step} | {name: v for name, v in row.items() if is_number(v)}
    for record in log.evaluations:
        known = {name: v for name, v in record.items() if is_number(v) and name != "line"}
        rows.setdefault(record["step"], {}).update(known)
    study, folder = study_of(log.path), RunFolder(log.path).samples
    samples: dict[int, dict[str, Path]] = {}
    for path in sorted(folder.rglob("step-*.png")):
        if path.stem[5:].isdigit():
            prompt = "" if path.parent == folder else f"/{path.parent.name}"
            samples.setdefault(int(path.stem[5:]), {})[f"sample{prompt}"] = path
    own = log.path.name if log.path.is_dir() else log.name
    name = f"{study.path.name}.{own}" if study else own
    return TrackedRun(
        name=re.sub(r"[^\w.-]", "-", name),
        config=log.config or {},
        rows={step: rows[step] for step in sorted(rows)[: -1 if is_unfinished(log) else None]},
        samples=samples,
        verdicts=verdicts,
    )


def send(run: TrackedRun, project: str) -> int:
    """Send a run to a project of wandb, and return the number of steps that were new."""
    import pandas as pd
    import wandb

    sent = _sent_before(run.name, project)
    if not run.after(sent):
        return 0
    config = dict(run.config)
    try:
        started = wandb.init(project=project, id=run.name, config=config, resume="allow")
    except wandb.errors.Error as error:
        why = " ".join(str(error).split())
        raise Unreadable(f"wandb: {why}; or keep it here: WANDB_MODE=offline") from None
    with started as live:
        live.define_metric("*", step_metric="step")
        steps = run.after(live.summary.get("step", sent))
        for step in steps:
            row: dict[str, Any] = dict(run.rows[step])
            row |= {key: wandb.Image(str(file)) for key, file in run.samples.get(step, {}).items()}
            if step == steps[-1] and run.verdicts:
                row["verdicts"] = wandb.Table(dataframe=pd.DataFrame(run.verdicts).astype(str))
            live.log(row)
        if steps:
            Path(live.dir, _SENT).write_text(f"{steps[-1]} {run.name} {project}")
    return len(steps)


def _sent_before(name: str, project: str) -> int | None:
    """Return the newest step of a run that wandb's folders here hold for a project."""
    folder = Path(os.environ.get("WANDB_DIR", "."), "wandb")
    # The name of a folder may end in that of another run, or in a number.
    sent = (path.read_text().partition(" ") for path in folder.glob(f"*run-*/files/{_SENT}"))
    return max((int(step) for step, _, own in sent if own == f"{name} {project}"), default=None)
