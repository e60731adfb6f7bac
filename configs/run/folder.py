"""The run folder: its file names, how it is found or made, and how attempts at it are claimed."""

import json
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.disk import replace_file
from configs.errors import ConfigError
from configs.load import flatten, merge, parse_overrides, read_tree, resolve, to_tree
from configs.run.records import Record, RecordWriter, read_records, state
from configs.run.slurm_env import array_row, batch_job, is_restarted
from configs.run.study_folder import StudyFolder, is_study_folder
from configs.schema import Run, key_info, keys
from configs.yaml12 import dump_yaml

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class RunFolder:
    """The names of everything in one run's folder."""

    path: Path

    @property
    def name(self) -> str:
        """The folder's own name, `<stem of the YAML>-<id>`."""
        return self.path.name

    @property
    def config_file(self) -> Path:
        """What was asked: every key resolved, written once."""
        return self.path / "config.yaml"

    @property
    def manifest_file(self) -> Path:
        """Where it ran: one entry per attempt."""
        return self.path / "manifest.json"

    @property
    def metrics_file(self) -> Path:
        """What happened: append-only records."""
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        """Saved states, and `latest`, which names the newest."""
        return self.path / "checkpoints"

    @property
    def samples(self) -> Path:
        """Sample grids, by step."""
        return self.path / "samples"

    def prompt_sample(self, prompt: int, step: int) -> Path:
        """The image of one prompt, from 0, after `step` steps of a fine-tuning."""
        return self.samples / f"prompt-{prompt:02d}" / f"step-{step:09d}.png"

    @property
    def lora(self) -> Path:
        """LoRA files of a fine-tuning, by step: `step-000000500.safetensors`."""
        return self.path / "lora"

    @property
    def profile(self) -> Path:
        """Chrome traces and memory snapshots of profiled steps, by attempt."""
        return self.path / "profile"

    @property
    def tensorboard(self) -> Path:
        """TensorBoard events."""
        return self.path / "tensorboard"

    @property
    def stop_file(self) -> Path:
        """Its presence asks the run to save and stop."""
        return self.path / "STOP"

    def attempt(self, number: int) -> Path:
        """The folder of one attempt, counted from 1."""
        return self.path / "attempts" / f"{number:03d}"

    def attempts(self) -> list[int]:
        """The numbers of the attempts begun so far, in order."""
        folder = self.path / "attempts"
        found = (entry.name for entry in folder.iterdir()) if folder.is_dir() else iter(())
        return sorted(int(name) for name in found if name.isdigit())

    def config_tree(self, attempt: int | None = None) -> dict[str, Any]:
        """Return the resolved config as plain values, with the overrides up to `attempt`."""
        tree = read_tree(self.config_file)
        for number in reversed(self.attempts()):
            changes = self.attempt(number) / "overrides.yaml"
            if (attempt is None or number <= attempt) and changes.exists():
                return merge(tree, flatten(read_tree(changes)))
        return tree

    def config(self, attempt: int | None = None) -> Run:
        """The resolved config, checked again, with the changes made when it was resumed."""
        return resolve(self.config_tree(attempt), source=str(self.config_file))

    def manifest(self) -> dict[str, Any]:
        """The manifest, or an empty one where none was written yet."""
        try:
            return dict(json.loads(self.manifest_file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {}

    def note(self, attempt: int, **facts: Any) -> None:
        """Add facts to the manifest's entry of one attempt, replacing the file atomically."""
        manifest = {"run": self.name, "attempts": []} | self.manifest()
        entries = {entry["attempt"]: entry for entry in manifest["attempts"]}
        said = {name: fact for name, fact in facts.items() if fact is not None}
        entries[attempt] = {"attempt": attempt} | entries.get(attempt, {}) | said
        manifest["attempts"] = [entries[number] for number in sorted(entries)]
        replace_file(self.manifest_file, json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")

    def records(self) -> Iterator[Record]:
        """Every record of the run, in the order of writing."""
        return (record for _, record in read_records(self.metrics_file))

    def record_event(self, attempt: int, event: str, **fields: Any) -> Record:
        """Append one event of an attempt; raise `Superseded` if a newer attempt has begun."""
        writer = RecordWriter(self.path, attempt=attempt)
        try:
            return writer.event(event, **fields)
        finally:
            writer.close()

    def is_done(self, config: Run) -> bool:
        """Whether it ended with `done` at the step that `config` ends at, or beyond."""
        last = state(self.records())
        return (
            last is not None
            and last["event"] == "done"
            and last.get("step", 0) >= config.last_step()
        )


def is_run(path: Path) -> bool:
    """Whether a folder is a run's."""
    return (path / "config.yaml").is_file()


def open_run(path: Path) -> RunFolder:
    """The run whose folder a person named; `ConfigError` where it is none."""
    if not is_run(path):
        raise ConfigError(f"{path}: not a run folder; `python -m configs open CONFIG` makes one")
    return RunFolder(path)


def find_runs(path: Path) -> list[RunFolder]:
    """The runs in a folder of logs, studies' cells included, in the order of their names."""
    if is_run(path):
        return [RunFolder(path)]
    found = {file.parent for file in path.rglob("config.yaml") if ".code" not in file.parts}
    # What a run holds of another program may have a config.yaml of its own.
    begun = {folder for folder in found if (folder / "attempts").is_dir()}
    return [RunFolder(folder) for folder in sorted(found) if begun.isdisjoint(folder.parents)]


def logs_folder() -> Path:
    """Where runs are kept: `LOGS` of the site file, else `logs/` of the checkout."""
    return Path(os.environ.get("LOGS") or ROOT / "logs")


def new_id() -> str:
    """`MMDD-HHMMSS-xxxx`, for runs that are not a batch job's only one."""
    return f"{time.strftime('%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def find_run(source: Path, *, kind: str | None = None) -> RunFolder | None:
    """The run (of `kind`) that `source` resumes; None for what is to be a new run.

    A study's folder is the cell of this array task. Other than a folder, `source` is the run of
    before only in a batch job that Slurm restarted: that run is found by the job id.
    """
    if is_study_folder(source):
        return _cell(StudyFolder(source.resolve()))
    if is_run(source) and kind in (None, read_tree(source / "config.yaml").get("kind")):
        return RunFolder(source.resolve())
    if not batch_job() or not is_restarted():
        return None
    found = [path for path in logs_folder().glob(f"*-{batch_job()}") if is_run(path)]
    return RunFolder(found[0].resolve()) if found else None


def _cell(study: StudyFolder) -> RunFolder:
    """The cell of this array task, whose tasks are the rows from `FIRST_CELL` on."""
    index = array_row()
    if index is None:
        raise ConfigError(
            f"{study.path}: a study of many runs; name one of them in its cells/, or submit what "
            "is missing: python -m launch submit FOLDER"
        )
    return open_run(study.cell(study.row(index).cell))


def make_run(name: str, tree: dict[str, Any], *, identity: str | None = None) -> RunFolder:
    """A new folder for a resolved config; `identity`, else the batch job's id, else a new one."""
    if not name.isprintable() or not name.strip("."):
        raise ConfigError(f"{name!r}: a run cannot be named so; rename the YAML file")
    logs = logs_folder().resolve()
    try:
        logs.mkdir(parents=True, exist_ok=True)
        path = logs / f"{name}-{identity or batch_job() or new_id()}"
        # One batch script may start several runs: the first has the job's id.
        while path.exists():
            path = logs / f"{name}-{new_id()}"
        (path / "attempts").mkdir(parents=True)
        replace_file(path / "config.yaml", dump_yaml(tree))
    except OSError as error:
        raise ConfigError(
            f"{logs}: no run can be made there: {error.strerror}; set LOGS to a folder that can "
            "be written"
        ) from None
    return RunFolder(path)


def resume_config(run: RunFolder, overrides: list[str]) -> Run:
    """The config of a run with changes; only keys that leave the run the same run may change."""
    before = run.config_tree()
    after = resolve(merge(before, parse_overrides(overrides)), source=str(run.config_file))
    changed = _changes(before, to_tree(after))
    fixed = [name for name in changed if not key_info(after.kind, name).free]
    if fixed:
        free = ", ".join(name for name, info in keys(after.kind).items() if info.free)
        raise ConfigError(
            f"{', '.join(fixed)}: cannot change when {run.name} is resumed; start a new run with "
            f"{run.config_file} and the change, or change only {free}"
        )
    return after


def claim_attempt(run: RunFolder, config: Run) -> int:
    """Begin an attempt: its number, claimed by making its folder, with its changes kept in it."""
    asked = run.config_tree()
    while True:
        number = max(run.attempts(), default=0) + 1
        try:
            run.attempt(number).mkdir(parents=True)
            break
        except FileExistsError:
            continue
    if _changes(asked, to_tree(config)):
        # Against the config, not the last attempt: a change may also have been taken back.
        changes = _changes(read_tree(run.config_file), to_tree(config))
        replace_file(run.attempt(number) / "overrides.yaml", dump_yaml(merge({}, changes)))
    if not is_restarted():
        # Whoever starts a stopped run again wants it to run.
        run.stop_file.unlink(missing_ok=True)
    return number


def _changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    old = flatten(before)
    return {name: value for name, value in flatten(after).items() if old.get(name) != value}
