"""The run folder: its files, how runs are found and created, and how attempts are claimed."""

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
    """The files of one run folder."""

    path: Path

    @property
    def name(self) -> str:
        """The name of the folder, `<stem of the YAML>-<id>`."""
        return self.path.name

    @property
    def config_file(self) -> Path:
        """The config with every key resolved; written once."""
        return self.path / "config.yaml"

    @property
    def manifest_file(self) -> Path:
        """The facts about each attempt: where it ran, with which code and versions."""
        return self.path / "manifest.json"

    @property
    def metrics_file(self) -> Path:
        """The append-only records of what happened."""
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints, and of `latest`, which names the newest."""
        return self.path / "checkpoints"

    @property
    def samples(self) -> Path:
        """The folder of sample grids, by step."""
        return self.path / "samples"

    def prompt_sample(self, prompt: int, step: int) -> Path:
        """Return the sample of a prompt (counted from 0) after `step` steps of a fine-tuning."""
        return self.samples / f"prompt-{prompt:02d}" / f"step-{step:09d}.png"

    @property
    def lora(self) -> Path:
        """The folder of LoRA files, by step: `step-000000500.safetensors`."""
        return self.path / "lora"

    @property
    def profile(self) -> Path:
        """The folder of Chrome traces and memory snapshots, by attempt."""
        return self.path / "profile"

    @property
    def tensorboard(self) -> Path:
        """The folder of TensorBoard events."""
        return self.path / "tensorboard"

    @property
    def stop_file(self) -> Path:
        """If this file exists, the run saves and stops."""
        return self.path / "STOP"

    def attempt(self, number: int) -> Path:
        """Return the folder of an attempt, counted from 1."""
        return self.path / "attempts" / f"{number:03d}"

    def attempts(self) -> list[int]:
        """Return the numbers of the attempts begun so far, in order."""
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
        """Return the resolved config, validated again, with the overrides up to `attempt`."""
        return resolve(self.config_tree(attempt), source=str(self.config_file))

    def manifest(self) -> dict[str, Any]:
        """Return the manifest, empty if none is written yet."""
        try:
            return dict(json.loads(self.manifest_file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {}

    def note(self, attempt: int, **facts: Any) -> None:
        """Add facts to the entry of one attempt in the manifest; replace the file atomically."""
        manifest = {"run": self.name, "attempts": []} | self.manifest()
        entries = {entry["attempt"]: entry for entry in manifest["attempts"]}
        known = {name: fact for name, fact in facts.items() if fact is not None}
        entries[attempt] = {"attempt": attempt} | entries.get(attempt, {}) | known
        manifest["attempts"] = [entries[number] for number in sorted(entries)]
        replace_file(self.manifest_file, json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")

    def records(self) -> Iterator[Record]:
        """Yield every record of the run, in the order of writing."""
        return (record for _, record in read_records(self.metrics_file))

    def record_event(self, attempt: int, event: str, **fields: Any) -> Record:
        """Append one event of an attempt; raise `Superseded` if a newer attempt has begun."""
        writer = RecordWriter(self.path, attempt=attempt)
        try:
            return writer.event(event, **fields)
        finally:
            writer.close()

    def record_evaluation(self, **fields: Any) -> None:
        """Append an evaluation to the newest attempt, followed by its event `evaluated`."""
        writer = RecordWriter(self.path, attempt=self.attempts()[-1])
        try:
            writer.write(**fields)
            writer.event("evaluated", step=fields["step"])
        finally:
            writer.close()

    def is_done(self, config: Run) -> bool:
        """Return whether the run ended with `done` at or beyond the last step of `config`."""
        last = state(self.records())
        return (
            last is not None
            and last["event"] == "done"
            and last.get("step", 0) >= config.last_step()
        )


def is_run(path: Path) -> bool:
    """Return whether a folder is a run folder."""
    return (path / "config.yaml").is_file()


def open_run(path: Path) -> RunFolder:
    """Return the run in a folder; raise `ConfigError` if it is not a run folder."""
    if not is_run(path):
        raise ConfigError(f"{path}: not a run folder; `python -m configs open CONFIG` creates one")
    return RunFolder(path)


def find_runs(path: Path) -> list[RunFolder]:
    """Return the runs below a folder of logs, including the cells of studies, sorted by path."""
    if is_run(path):
        return [RunFolder(path)]
    found = {file.parent for file in path.rglob("config.yaml") if ".code" not in file.parts}
    # The output of another program inside a run may have its own config.yaml.
    runs = {folder for folder in found if (folder / "attempts").is_dir()}
    return [RunFolder(folder) for folder in sorted(found) if runs.isdisjoint(folder.parents)]


def logs_folder() -> Path:
    """Return the folder of all runs: `LOGS` of the site file, else `logs/` of the checkout."""
    return Path(os.environ.get("LOGS") or ROOT / "logs")


def new_id() -> str:
    """Return a new id `MMDD-HHMMSS-xxxx`, for runs that are not named after a batch job."""
    return f"{time.strftime('%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def find_run(source: Path, *, kind: str | None = None) -> RunFolder | None:
    """Return the run (of `kind`) that `source` resumes, or None if a new run is to be created.

    A study folder means the cell of this array task. Any other `source` that is not a run folder
    resumes a run only in a batch job that Slurm restarted; the run is found by the job id.
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
    """Return the cell of this array task."""
    index = array_row()
    if index is None:
        raise ConfigError(
            f"{study.path}: a study of many runs; name one of them in its cells/, or submit the "
            "missing ones: python -m launch submit FOLDER"
        )
    return open_run(study.cell(study.row(index).cell))


def make_run(name: str, tree: dict[str, Any], *, identity: str | None = None) -> RunFolder:
    """Create a run folder for a resolved config.

    Its id is `identity`, by default the id of the batch job, or a new id outside of one.
    """
    if not name.isprintable() or not name.strip("."):
        raise ConfigError(f"{name!r}: not a valid name for a run; rename the YAML file")
    logs = logs_folder().resolve()
    try:
        logs.mkdir(parents=True, exist_ok=True)
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
    """Return the config of a run with overrides; raise `ConfigError` if one is not a free key."""
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
    """Claim the next attempt by creating its folder with its overrides; return its number."""
    before = run.config_tree()
    while True:
        number = max(run.attempts(), default=0) + 1
        try:
            run.attempt(number).mkdir(parents=True)
            break
        except FileExistsError:
            continue
    if _changes(before, to_tree(config)):
        # Compare with config.yaml, not with the last attempt: a change may have been reverted.
        changes = _changes(read_tree(run.config_file), to_tree(config))
        replace_file(run.attempt(number) / "overrides.yaml", dump_yaml(merge({}, changes)))
    if not is_restarted():
        # A person who starts a stopped run again wants it to run.
        run.stop_file.unlink(missing_ok=True)
    return number


def _changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    old = flatten(before)
    return {name: value for name, value in flatten(after).items() if old.get(name) != value}
