"""Plant run folders with fixed times, and the answers of a Slurm to questions about their jobs.

An attempt is written as its records, one string each:

    "started 0"   "saved 200"   "steps 10-240"   "paused"      an event, and its step
    "failed nan@7: loss is nan"   "skipped oom by oom: ..."    reason, step, proof and message
"""

import json
import os
import re
import shutil
import time
import zlib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from configs.load import merge, resolve, to_tree
from configs.yaml12 import dump_yaml
from runs.folder import RunFolder
from runs.study_folder import StudyFolder, StudyRow

BEGAN = 1_700_000_000
ATTEMPT_S = 3600
_FINETUNE = {
    "kind": "finetune", "data.folder": "/photos", "flux.folder": "/flux", "train.steps": 600,
    "sample.prompts": ["a photo"],
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "pretrain": {"train.steps": 600, "data.held_out": 0.1},
    "embedded": _FINETUNE | {"engine": "embedded"},
    "aitoolkit": _FINETUNE | {"engine": "aitoolkit"},
    "command": {"kind": "command", "run": "python3 train.py --out {output}", "folder": "/program"},
    "sample": {"kind": "sample", "run": "/logs/digits-1"},
    "gns": {"kind": "gns", "run": "/logs/digits-1"},
}
_RECORD = re.compile(
    r"(?P<event>\w+)(?: (?P<first>\d+)-(?P<last>\d+)| (?P<at>\d+))?"
    r"(?: (?P<reason>[a-z]\w*))?(?:@(?P<step>\d+))?(?: by (?P<proof>\S+?))?(?:: (?P<message>.*))?"
)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt: its records, and the files in its folder.

    `note` is the error note of the first failing rank, as "RANK REASON: MESSAGE"; `files` have
    their text by name; `entry` is added to the manifest.
    """

    records: tuple[str, ...] = ()
    note: str = ""
    output: str = ""
    files: dict[str, str] = field(default_factory=dict)
    entry: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Start:
    """One start of a job in Slurm's words; times are in seconds after that of its attempt."""

    state: str
    exit_code: str = "0:0"
    reason: str = "None"
    ended_s: int | None = None
    limit: str = "04:00:00"
    partition: str = "gpu"
    known_to: tuple[str, ...] = ("squeue", "sacct", "scontrol")


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run folder: its attempts, what was recorded before the first and for the next, its job.

    `job` has a start for each attempt and for one that waits; `submitted` is whether the launcher
    submitted it. `files` have their text by their path in the run; "-PATH" removes one.
    """

    name: str
    kind: str = "pretrain"
    attempts: tuple[Attempt, ...] = ()
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    job: tuple[Start, ...] | None = None
    submitted: bool = True
    job_output: str = ""
    files: dict[str, str] = field(default_factory=dict)

    @property
    def job_id(self) -> str:
        """The id of the job, which depends on the name alone."""
        return str(zlib.crc32(self.name.encode()) % 90_000 + 10_000)


def began(number: int) -> int:
    """Return when an attempt began, in seconds since 1970."""
    return BEGAN + ATTEMPT_S * (number - 1)


@cache
def config_text(kind: str) -> str:
    """Return config.yaml of a kind of run."""
    return dump_yaml(to_tree(resolve(merge({}, KINDS[kind]), source=kind)))


def records(written: str, *, attempt: int, now: float) -> list[dict[str, Any]]:
    """Return the records that one string stands for, from a time on."""
    found = _RECORD.fullmatch(written)
    assert found, written
    head: dict[str, Any] = {"time": now, "attempt": attempt}
    if found["event"] == "steps":
        steps = range(int(found["first"]), int(found["last"]) + 1, 10)
        return [
            head | {"time": now + i, "step": step, "images": 64 * step, "loss": 1 + 10 / step}
            | {"train_s": 0.9 * step, "data_s": 0.01 * step}
            for i, step in enumerate(steps)
        ]  # fmt: skip
    at = found["at"] or found["step"]
    fields = {"step": None if at is None else int(at), "reason": found["reason"]}
    fields |= {"proof": found["proof"], "message": found["message"]}
    return [head | {"event": found["event"]} | {k: v for k, v in fields.items() if v is not None}]


def plant(run: Run, path: Path) -> RunFolder:
    """Write a run folder and the output of its job; return the folder."""
    (path / "attempts").mkdir(parents=True)
    (path / "config.yaml").write_text(config_text(run.kind))
    lines = [
        one
        for i, text in enumerate(run.before)
        for one in records(text, attempt=1, now=began(1) - 600 + i)
    ]
    entries = []
    for number, attempt in enumerate(run.attempts, start=1):
        _plant_attempt(attempt, path / "attempts" / f"{number:03d}")
        for i, text in enumerate(attempt.records):
            lines += records(text, attempt=number, now=began(number) + 10 + 60 * i)
        entry: dict[str, Any] = {"attempt": number, "time": float(began(number))}
        if run.job is not None:
            restart = {"restarts": number - 1} if number > 1 else {}
            entry["slurm"] = {"job": run.job_id, "nodelist": "n[1-2]", **restart}
        entries.append(entry | attempt.entry)
    following = len(run.attempts) + 1
    for text in run.after:
        lines += records(text, attempt=following, now=began(following) - 60)
    if lines:
        (path / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    if entries:
        manifest = {"schema_version": 1, "run": run.name, "attempts": entries}
        (path / "manifest.json").write_text(json.dumps(manifest))
    if run.job is not None and run.submitted:
        (path / "jobs").mkdir()
        (path / "jobs" / f"{run.job_id}.sbatch").write_text("#!/bin/bash\n")
    if run.job_output:
        text = run.job_output.replace("{run}", str(path))
        (path.parent / f"{run.kind}-{run.job_id}.out").write_text(text + "\n")
    _write(path, run.files)
    return RunFolder(path)


def _plant_attempt(attempt: Attempt, folder: Path) -> None:
    folder.mkdir()
    if attempt.note:
        rank, reason, message = re.fullmatch(r"(\d+) (\w+): (.*)", attempt.note, re.S).groups()
        node = f"n{int(rank) // 2 + 1}"
        note = {"rank": int(rank), "node": node, "reason": reason, "message": message}
        (folder / "error.json").write_text(json.dumps(note))
    _write(folder, ({"output.log": attempt.output} if attempt.output else {}) | attempt.files)


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name.removeprefix("-")
        if name.startswith("-"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n" if text and not text.endswith("\n") else text)


def plant_study(runs: list[Run], path: Path) -> StudyFolder:
    """Write a study folder whose cells are these runs; return it."""
    study = StudyFolder(path)
    for run in runs:
        plant(run, study.cell(run.name))
    study.jobs.mkdir()
    study.write_rows(
        StudyRow(index=i, order=i, cell=run.name, repeat=1, shape="s", digest="d", levels={})
        for i, run in enumerate(runs)
    )
    return study


def age(folder: Path) -> None:
    """Give every file and folder the same time of its last change."""
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (BEGAN, BEGAN), follow_symlinks=False)


def _local(when: float) -> str:
    return time.strftime("%FT%T", time.localtime(when))


def plant_slurm(runs: list[Run], answers: Path) -> None:
    """Write what the commands of Slurm answer about the jobs of runs, see `commands`."""
    queue = []
    for name in ("sacct", "scontrol"):
        (answers / name).mkdir(parents=True)
    for run in runs:
        job, rows = run.job_id, []
        for number, start in enumerate(run.job or (), start=1):
            begins = began(number) - 30
            ends = None if start.ended_s is None else began(number) + start.ended_s
            waits = start.state == "PENDING"
            times = ("Unknown", "Unknown") if waits else (
                _local(begins), "Unknown" if ends is None else _local(ends)
            )  # fmt: skip
            nodes = "None assigned" if waits else "n[1-2]"
            accounted = (job, start.state, start.exit_code, *times, start.limit, start.reason)
            rows.append("|".join((*accounted, start.partition, nodes)) + "\n")
        if not rows:
            continue
        state = start.state.split()[0]
        if "sacct" in start.known_to:
            (answers / "sacct" / job).write_text("".join(rows))
        if "squeue" in start.known_to:
            left, may_begin = ("", _local(began(9))) if waits else ("30:00", times[0])
            shown = "" if waits else nodes
            queue.append(f"{job}|{state}|{shown}|{left}|{may_begin}|{start.reason}\n")
        if "scontrol" in start.known_to:
            until = f" EndTime={times[1]}" if ends is not None else ""
            fields = f"JobState={state} Reason={start.reason} ExitCode={start.exit_code}"
            fields += f" StartTime={_local(began(9)) if waits else times[0]}{until}"
            fields += f" TimeLimit={start.limit} Partition={start.partition}"
            fields += "" if waits else f" NodeList={nodes}"
            (answers / "scontrol" / f"job-{job}").write_text(f"JobId={job} {fields}\n")
    (answers / "squeue").write_text("".join(queue))
    for name, mode in (("gpu", "OFF"), ("preempt", "REQUEUE")):
        shown = f"PartitionName={name} PreemptMode={mode}\n"
        (answers / "scontrol" / f"partition-{name}").write_text(shown)


COMMANDS = {
    "squeue": 'exec cat "$ANSWERS/squeue"',
    "scontrol": 'exec cat "$ANSWERS/scontrol/$2-$3"',
    "sacct": """for word; do case $word in --jobs=*) jobs=${word#*=} ;; esac; done
        cd "$ANSWERS/sacct" && cat ${jobs//,/ }; exit 0""",
}


def commands(folder: Path) -> Path:
    """Write squeue, sacct and scontrol, which print the answers in the folder `$ANSWERS`."""
    folder.mkdir()
    for name, script in COMMANDS.items():
        (folder / name).write_text(f"#!/bin/bash\nexec 2>/dev/null\n{script}\n")
        (folder / name).chmod(0o755)
    return folder
