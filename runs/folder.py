"""The run folder: its files, and how runs are found and created."""

import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.disk import Below, replace_file
from configs.errors import ConfigError
from configs.load import flatten, merge, parse_overrides, read_tree, resolve, to_tree
from configs.progress import counted
from configs.schema import Run, key_info, keys
from configs.yaml12 import dump_yaml
from runs.json_files import SCHEMA_VERSION, AttemptEntry, Manifest, read_manifest
from runs.records import Record, RecordWriter, read_records
from runs.slurm_env import batch_job, is_restarted
from runs.study_folder import is_study_folder
from runs.trust import check_above, check_own, keep_from_others

ROOT = Path(__file__).resolve().parents[1]
# File systems take names of up to 255 bytes; an id, and suffixes of files, are appended.
_LONGEST_NAME = 200


@dataclass(frozen=True)
class RunFolder:
    """The files of one run folder."""

    path: Path
    config_file = Below("config.yaml")  # the config with every key resolved; written once
    manifest_file = Below("manifest.json")  # where each attempt ran, with which code and versions
    metrics_file = Below("metrics.jsonl")  # the append-only records of what happened
    checkpoints = Below("checkpoints")  # the folder also of `latest`, which names the newest
    samples = Below("samples")  # the folder of sample grids, by step
    lora = Below("lora")  # the folder of LoRA files, by step: `step-000000500.safetensors`
    profile = Below("profile")  # the folder of Chrome traces, by attempt
    tensorboard = Below("tensorboard")  # the folder of TensorBoard events
    stop_file = Below("STOP")  # if this file exists, the run saves and stops

    @property
    def name(self) -> str:
        """The name of the folder, `<stem of the YAML>-<id>`."""
        return self.path.name

    def prompt_sample(self, prompt: int, step: int) -> Path:
        """Return the sample of a prompt (counted from 0) after `step` steps of a fine-tuning."""
        return self.samples / f"prompt-{prompt:02d}" / f"step-{step:09d}.png"

    def attempt(self, number: int) -> Path:
        """Return the folder of an attempt, counted from 1."""
        return self.path / "attempts" / f"{number:03d}"

    def attempts(self) -> list[int]:
        """Return the numbers of the attempts begun so far, in order."""
        found = self.path.glob("attempts/[0-9][0-9][0-9]*/")
        numbers = [int(entry.name) for entry in found if re.fullmatch("[0-9]{3,9}", entry.name)]
        return sorted(number for number in numbers if number and self.attempt(number).is_dir())

    def config_tree(self, attempt: int | None = None) -> dict[str, Any]:
        """Return the resolved config as plain values, with the overrides up to `attempt`."""
        tree = read_tree(self.config_file)
        for number in reversed(self.attempts()):
            own = self.attempt(number) / "overrides.yaml"
            if (attempt is None or number <= attempt) and own.exists():
                return merge(tree, flatten(read_tree(own)))
        return tree

    def config(self, attempt: int | None = None) -> Run:
        """Return the resolved config, validated again, with the overrides up to `attempt`."""
        return resolve(self.config_tree(attempt), source=str(self.config_file))

    def manifest(self) -> Manifest:
        """Return the manifest, empty if none is written yet."""
        return read_manifest(self.manifest_file)

    def entries(self) -> list[AttemptEntry]:
        """Return the facts about every attempt in the manifest, in order."""
        return self.manifest().get("attempts", [])

    def engine(self) -> str | None:
        """Return the engine of a fine-tuning that trained the run first, None before that."""
        return next((entry["engine"] for entry in self.entries() if "engine" in entry), None)

    def note(self, attempt: int, **facts: Any) -> None:
        """Add facts to the entry of one attempt in the manifest; replace the file atomically."""
        manifest: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "run": self.name}
        manifest |= {"config": read_tree(self.config_file), **self.manifest()}
        entries: dict[int, Any] = {entry["attempt"]: entry for entry in self.entries()}
        known = {name: fact for name, fact in facts.items() if fact is not None}
        entries[attempt] = {"attempt": attempt} | entries.get(attempt, {}) | known
        manifest["attempts"] = [entries[number] for number in sorted(entries)]
        replace_file(self.manifest_file, json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")

    def records(self) -> Iterator[Record]:
        """Yield every record of the run, in the order of writing."""
        return (record for _, record in read_records(self.metrics_file))

    def record_event(self, attempt: int, event: str, **fields: Any) -> Record:
        """Append one event of an attempt; raise `Superseded` if a newer attempt has begun."""
        with closing(RecordWriter(self.path, attempt=attempt)) as writer:
            return writer.event(event, **fields)

    def record_evaluation(self, **fields: Any) -> None:
        """Append an evaluation to the newest attempt, followed by its event `evaluated`."""
        with closing(RecordWriter(self.path, attempt=self.attempts()[-1])) as writer:
            writer.write(**fields)
            writer.event("evaluated", step=fields["step"])


def is_run(path: Path) -> bool:
    """Return whether a folder is a run folder."""
    return os.path.isfile(path / "config.yaml")


def open_run(path: Path) -> RunFolder:
    """Return the run in a folder; raise `ConfigError` if it is not a run folder."""
    if not is_run(path):
        raise ConfigError(f"{path}: not a run folder; `ditbench submit CONFIG` creates one")
    return RunFolder(path)


def find_runs(path: Path) -> list[RunFolder]:
    """Return the runs below a folder of logs, including the cells of studies, sorted by path."""
    if is_run(path):
        return [RunFolder(path)]
    found = []
    for folder, below, files in counted(os.walk(path), f"looking for runs in {path}, folders"):
        if "config.yaml" in files:
            found.append(RunFolder(Path(folder)))
        # The output of another program inside a run may have its own config.yaml.
        is_begun = "config.yaml" in files and "attempts" in below
        below[:] = [] if is_begun else [name for name in below if name != ".code"]
    return sorted(found, key=lambda run: run.path)


def logs_folder() -> Path:
    """Return the folder of all runs: `LOGS` of the site file, else `logs/` of the checkout."""
    return Path(os.environ.get("LOGS") or ROOT / "logs")


def new_id() -> str:
    """Return a new id `MMDD-HHMMSS-xxxx`, for runs that are not named after a batch job."""
    return f"{time.strftime('%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def find_run(source: Path, *, kind: str | None = None) -> RunFolder | None:
    """Return the run (of `kind`) that `source` resumes, or None if a new run is to be created.

    A `source` that is not a run folder resumes a run only in a batch job that Slurm restarted; the
    run is found by the job id. Raise `ConfigError` for a study and for a folder of another user.
    """
    if is_study_folder(source):
        raise ConfigError(
            f"{source}: a study of many runs; name one of them in its cells/, or submit the "
            f"missing ones: ditbench submit {source}"
        )
    if is_run(source) and kind in (None, read_tree(source / "config.yaml").get("kind")):
        check_own(source)
        return RunFolder(source.resolve())
    if not batch_job() or not is_restarted():
        return None
    # The name can be guessed, so another user may have made a folder of that name.
    found = [
        path
        for path in logs_folder().glob(f"*-{batch_job()}")
        if is_run(path) and path.stat().st_uid == os.geteuid()
    ]
    if not found:
        return None
    check_own(found[0])
    return RunFolder(found[0].resolve())


def run_name(source: Path, config: Run) -> str:
    """Return the first part of the name of a new run's folder."""
    by_source = f"{config.kind}-{source.resolve().name}" if is_run(source) else source.stem
    return config.name or by_source


def make_run(name: str, tree: dict[str, Any], *, identity: str | None = None) -> RunFolder:
    """Create a run folder with the id `identity`, else the batch job's, else a new one."""
    if not name.isprintable() or not name.strip(".") or len(os.fsencode(name)) > _LONGEST_NAME:
        raise ConfigError(
            f"{name!r}: not a valid name for a run (at most {_LONGEST_NAME} bytes); "
            "rename the YAML file"
        )
    logs = logs_folder().resolve()
    try:
        logs.mkdir(parents=True, exist_ok=True)
        keep_from_others(logs)
        check_above(logs / name)
        path = logs / f"{name}-{identity or batch_job() or new_id()}"
        # A batch script may start several runs: only the first gets the id of the job.
        while path.exists():
            path = logs / f"{name}-{new_id()}"
        (path / "attempts").mkdir(parents=True)
        replace_file(path / "config.yaml", dump_yaml(tree))
    except OSError as error:
        raise ConfigError(
            f"{logs}: cannot create a run there: {error.strerror}; set LOGS to a writable folder"
        ) from None
    return RunFolder(path)


def resume_config(run: RunFolder, overrides: list[str]) -> Run:
    """Return the config of a run with overrides.

    Raise `ConfigError` if one is not a free key, or if config.yaml was edited since the run began;
    without a config in the manifest, as in older runs, no edit is found.
    """
    source = str(run.config_file)
    before = flatten(run.manifest().get("config", {}))
    edited = changes(before, to_tree(resolve(read_tree(run.config_file), source=source)))
    for name in before.keys() & edited.keys():
        raise ConfigError(
            f"{name}: edited in {source}, which holds what the run began with; set it back to "
            f"{before[name]}, and change keys on the command line: "
            f"ditbench submit {run.path} {name}={edited[name]}"
        )
    after = resolve(merge(run.config_tree(), parse_overrides(overrides)), source=source)
    # A key younger than the run has its default on both sides.
    changed = changes(flatten(to_tree(run.config())), to_tree(after))
    fixed = [name for name in changed if not key_info(after.kind, name).free]
    if fixed:
        free = ", ".join(name for name, info in keys(after.kind).items() if info.free)
        raise ConfigError(
            f"{', '.join(fixed)}: cannot change when {run.name} is resumed; start a new run "
            f"with {run.config_file} and the change, or change only {free}"
        )
    return after


def changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the values of dotted keys that are not as `before`."""
    return {name: value for name, value in flatten(after).items() if before.get(name) != value}
