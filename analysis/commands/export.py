"""`export`: the records of runs for wandb, or as one table."""

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.commands import writing
from analysis.read.find import read_logs
from analysis.read.run_log import RunLog
from configs.disk import replacing
from configs.errors import Unreadable
from configs.terminal import csv_cell
from runs.folder import RunFolder
from runs.records import is_number
from runs.study_folder import study_of

EXAMPLE = "ditbench export logs/layouts-1120 --to wandb"


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """A run as wandb gets it: metrics by step and samples by step."""

    name: str
    config: Mapping[str, Any]
    rows: Mapping[int, Mapping[str, float]]
    samples: Mapping[int, Mapping[str, Path]]


def tracked(log: RunLog) -> TrackedRun:
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
    is_open = log.state.is_open and log.state.has_events
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
        rows={step: rows[step] for step in sorted(rows)[: -1 if is_open else None]},
        samples=samples,
    )


def send(run: TrackedRun, project: str) -> int:
    """Send a run to a project of wandb, and return the number of steps that were new."""
    import wandb

    config = dict(run.config)
    try:
        started = wandb.init(project=project, id=run.name, config=config, resume="allow")
    except wandb.errors.Error as error:
        raise Unreadable(f"wandb: {' '.join(str(error).split())}") from None
    with started as live:
        live.define_metric("*", step_metric="step")
        last = live.summary.get("step")
        steps = [step for step in run.rows if last is None or step > last]
        for step in steps:
            images = run.samples.get(step, {}).items()
            live.log(dict(run.rows[step]) | {key: wandb.Image(str(file)) for key, file in images})
    return len(steps)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the form, the project of wandb, and the file."""
    parser.add_argument("--to", required=True, choices=("csv", "parquet", "wandb"))
    parser.add_argument("--project", default="ditbench", help="of wandb (default: ditbench)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the table of csv or parquet")


def run(args: argparse.Namespace) -> int:
    """Send what wandb lacks, or write the table."""
    if (args.to == "wandb") == bool(args.out):
        raise Unreadable(f"--to {args.to} {'takes no' if args.out else 'needs'} --out")
    runs = [tracked(log) for log in read_logs(args.paths)]
    if len({one.name for one in runs}) < len(runs):
        raise Unreadable("two of these runs have the same name: export them into two projects")
    try:
        if args.to == "wandb":
            for one in runs:
                print(f"{one.name}: {send(one, args.project)} new steps", flush=True)
        else:
            print(f"{args.out}: {_write(runs, args)} rows")
    except ImportError:
        package = "pyarrow" if args.to == "parquet" else args.to
        raise Unreadable(f"--to {args.to} needs a package; first: pip install {package}") from None
    return 0


def _write(runs: list[TrackedRun], args: argparse.Namespace) -> int:
    """Write a row per step of each run, and return their number."""
    rows = [{"run": one.name} | dict(row) for one in runs for row in one.rows.values()]
    if args.to == "csv":
        rows = [{csv_cell(name): csv_cell(value) for name, value in row.items()} for row in rows]
    table = pd.DataFrame(rows)
    with writing(args.out), replacing(args.out) as file:
        table.to_csv(file, index=False) if args.to == "csv" else table.to_parquet(file)
    return len(table)
