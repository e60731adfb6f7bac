"""Run folders and study folders, as docs/architecture.md describes them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.analysis_coverage.scenario import Floats
from configs.load import merge, parse_overrides, resolve, to_tree
from configs.yaml12 import dump_yaml

START = 1_750_000_000.0
STEP_S = 0.25
SETUP_S = 15.0
# Between the end of a run and the start of the next one on its node.
BETWEEN_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one run records: a record each `every` steps of `STEP_S` x `seconds` [n] each.

    `overrides` are keys of the config that differ from its defaults. Records at `attempts` [k]
    begin another attempt, in the round of the same place in `turns` if that is given, which begins
    at the time of the same place in `starts`. `extra` are further fields of each record, and
    `evaluations` the results after a record. A save of three seconds follows each `save_every`-th
    record. `clock_grid` is the resolution of `train_s`.
    """

    seconds: Floats
    loss: Floats | None = None
    every: int = 10
    batch: int = 64
    seed: int = 0
    node: str = "n1"
    overrides: tuple[str, ...] = ()
    attempts: tuple[int, ...] = (0,)
    turns: tuple[str, ...] = ()
    starts: tuple[float, ...] = (START,)
    extra: Sequence[Mapping[str, Any]] = ()
    evaluations: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    save_every: int = 0
    clock_grid: float = 1e-6
    gpu_gb: float | None = None

    @property
    def wall_s(self) -> float:
        """The seconds from the start of a run of one attempt to its end."""
        saves = len(self.seconds) // self.save_every if self.save_every else 0
        return SETUP_S + float(self.seconds.sum()) * self.every * STEP_S + 3.0 * saves


@cache
def _config(overrides: tuple[str, ...]) -> str:
    """Return the text of config.yaml, with every key resolved."""
    told = ["train.compile=false", "log.tensorboard=false", *overrides]
    return dump_yaml(to_tree(resolve(merge({}, parse_overrides(told)), source="planted")))


def write_run(folder: Path, run: Run) -> Path:
    """Write a run folder that has ended, and return it."""
    number = len(run.seconds)
    keys = (
        f"train.steps={number * run.every}", f"log.every={run.every}",
        f"train.global_batch={run.batch}", f"seed={run.seed}", *run.overrides,
    )  # fmt: skip
    (folder / "attempts" / "001").mkdir(parents=True)
    (folder / "config.yaml").write_text(_config(keys))
    lines, spans = _records(run)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    place = {
        "rank": 0, "node": run.node, "host": run.node, "local_rank": 0, "threads": 8,
        "gpu": "NVIDIA A40", "gpu_memory_gb": 48.0, "cpu": "AMD EPYC",
    }  # fmt: skip
    entries = []
    for index, (began, ended) in enumerate(spans):
        entry = {
            "attempt": index + 1, "time": began, "began": began, "ended": ended,
            "host": run.node, "commit": "0" * 40, "dirty": False, "placement": [place],
            "ranks": 1, "versions": {"python": "3.11.7", "torch": "2.15.0"},
        }  # fmt: skip
        entries.append(entry | ({"turn": run.turns[index]} if run.turns else {}))
    manifest = {"schema_version": 1, "run": folder.name, "attempts": entries}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def _records(run: Run) -> tuple[list[dict[str, Any]], list[tuple[float, float]]]:
    """Return the lines of metrics.jsonl, and when each attempt began and ended."""
    now = run.starts[0]
    lines: list[dict[str, Any]] = [{"time": now - 30, "attempt": 1, "event": "queued"}]
    spans: list[tuple[float, float]] = []
    clocks = {"setup_s": 0.0, "train_s": 0.0, "data_s": 0.0, "save_s": 0.0, "eval_s": 0.0}
    began, attempt = now, 0
    for index, relative in enumerate(run.seconds):
        if index in run.attempts:
            if attempt:
                spans.append((began, now))
            now = max(now, run.starts[attempt] if attempt < len(run.starts) else now + 30)
            began, attempt = now, attempt + 1
            lines.append(
                {"time": now, "attempt": attempt, "event": "started", "step": index * run.every}
            )
            now += SETUP_S
            clocks["setup_s"] += SETUP_S
        spent = float(relative) * run.every * STEP_S
        now += spent
        clocks["train_s"] += spent
        clocks["data_s"] += 0.02 * spent
        step = (index + 1) * run.every
        at = {"time": round(now, 6), "attempt": attempt}
        record = at | {"step": step, "images": step * run.batch}
        record["loss"] = 0.5 if run.loss is None else float(run.loss[index])
        record |= {name: _on_grid(value, run.clock_grid) for name, value in clocks.items()}
        record |= {"gpu_gb": run.gpu_gb} if run.gpu_gb else {}
        lines.append(record | (dict(run.extra[index]) if run.extra else {}))
        if index in run.evaluations:
            lines.append(
                at | {"step": step, "images": step * run.batch} | dict(run.evaluations[index])
            )
        if run.save_every and (index + 1) % run.save_every == 0:
            now += 3.0
            clocks["save_s"] += 3.0
            lines.append({"time": now, "attempt": attempt, "event": "saved", "step": step})
    spans.append((began, now))
    end = len(run.seconds) * run.every
    lines.append({"time": now, "attempt": attempt, "event": "done", "step": end})
    return lines, spans


def _on_grid(value: float, grid: float) -> float:
    return round(np.floor(value / grid) * grid, 6)


def one_after_another(folder: Path, runs: Mapping[str, Run]) -> dict[str, Path]:
    """Write runs of one attempt, each of which begins after all before it have ended."""
    paths, now = {}, START
    for name, run in runs.items():
        at = Run(**(vars(run) | {"starts": (now,)}))
        paths[name] = write_run(folder / name, at)
        now += run.wall_s + BETWEEN_S
    return paths


def write_study(
    folder: Path,
    runs: Mapping[str, Run],
    *,
    axes: Mapping[str, Sequence[Any]],
    levels: Mapping[str, Mapping[str, Any]],
    repeat: Mapping[str, int],
    decided: bool = False,
) -> Path:
    """Write a study whose runs ran in the order of `runs`, and return its folder.

    `levels` are those of each run on the axes, and `repeat` its number within its cell.
    """
    folder.mkdir(parents=True)
    repeats = max(repeat.values())
    study = {"kind": "study", "base": "base.yaml", "axes": dict(axes), "repeats": repeats}
    study |= {"stop": "decided"} if decided else {}
    (folder / "study.yaml").write_text(dump_yaml(study))
    names = list(axes)
    table = ["\t".join(["index", "order", "cell", "repeat", "shape", "digest", *names])]
    for index, name in enumerate(runs):
        own = [json.dumps(levels[name][axis]) for axis in names]
        first = [str(index), str(index), name, str(repeat[name]), "1x1-any-1h-8cpu", "d"]
        table.append("\t".join(first + own))
    (folder / "cells.tsv").write_text("\n".join(table) + "\n")
    one_after_another(folder / "cells", runs)
    return folder


def queue_again(folder: Path) -> None:
    """Make a run folder one that still waits."""
    (folder / "manifest.json").unlink()
    (folder / "attempts" / "001").rmdir()
    (folder / "attempts").rmdir()
    line = {"time": START - 30, "attempt": 1, "event": "queued"}
    (folder / "metrics.jsonl").write_text(json.dumps(line) + "\n")
