"""The run folder: its file names, how it is found or made, and how attempts at it are claimed."""

import json
import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.batch import divide
from configs.disk import replace_file
from configs.load import flatten, merge, parse_overrides, read_tree, resolve, to_tree
from configs.records import Record, RecordWriter, read_records, state
from configs.schema import Pretrain, keys
from configs.yaml12 import ConfigError, dump_yaml

ROOT = Path(__file__).resolve().parent.parent


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

    def asked(self, attempt: int | None = None) -> dict[str, Any]:
        """The resolved config as plain values, with the changes of attempts up to `attempt`."""
        tree = read_tree(self.config_file)
        for number in reversed(self.attempts()):
            changes = self.attempt(number) / "overrides.yaml"
            if (attempt is None or number <= attempt) and changes.exists():
                return merge(tree, read_tree(changes))
        return tree

    def config(self, attempt: int | None = None) -> Pretrain:
        """The resolved config, checked again, with the changes made when it was resumed."""
        return resolve(self.asked(attempt), source=str(self.config_file))

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

    def is_done(self) -> bool:
        """Whether it has done all of its present `train.steps`."""
        last = state(self.records())
        if last is None or last["event"] != "done":
            return False
        return bool(last.get("step", 0) >= self.asked()["train"]["steps"])


def is_run(path: Path) -> bool:
    """Whether a folder is a run's."""
    return (path / "config.yaml").is_file()


def find_runs(path: Path) -> list[RunFolder]:
    """The runs in a folder of logs, studies' cells included, in the order of their names."""
    if is_run(path):
        return [RunFolder(path)]
    found = (parent for parent in path.rglob("config.yaml") if ".code" not in parent.parts)
    return [RunFolder(file.parent) for file in sorted(found)]


def logs_folder() -> Path:
    """Where runs are kept: `LOGS` of the site file, else `logs/` of the checkout."""
    return Path(os.environ.get("LOGS") or ROOT / "logs")


def new_id() -> str:
    """`MMDD-HHMMSS-xxxx`, for runs that are not a batch job's only one."""
    return f"{time.strftime('%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def open_run(source: Path, overrides: list[str], *, world: int | None = None) -> RunFolder:
    """Find the run that `source` names, or make one for the config that it is.

    A run folder is resumed; a config is a new run, except in a batch job that Slurm restarted,
    whose folder is found again by the job id. `ConfigError` before anything is written.
    """
    if is_run(source):
        run = RunFolder(source.resolve())
        divide_if_known(resume_config(run, overrides), world)
        return run
    found = _restarted_run()
    if found is not None:
        return found
    config = resolve(merge(read_tree(source), parse_overrides(overrides)), source=str(source))
    divide_if_known(config, world)
    name = source.name.removesuffix(".yaml").removesuffix(".yml")
    return make_run(name, to_tree(config))


def divide_if_known(config: Pretrain, world: int | None) -> None:
    """Refuse a config whose batch or mesh does not fit the world, where that is known."""
    if world is not None:
        divide(config, world=world)


def make_run(name: str, tree: dict[str, Any]) -> RunFolder:
    """A new folder for a resolved config."""
    if not name.isprintable() or name in ("", ".", ".."):
        raise ConfigError(f"{name!r}: a run cannot be named so; rename the YAML file")
    logs = logs_folder()
    run = RunFolder(logs.resolve() / f"{name}-{_batch_job() or new_id()}")
    try:
        logs.mkdir(parents=True, exist_ok=True)
        run.path.mkdir()
        (run.path / "attempts").mkdir()
        replace_file(run.config_file, dump_yaml(tree))
    except FileExistsError:
        raise ConfigError(f"{run.path}: exists already; to resume it, give it instead") from None
    except OSError as error:
        raise ConfigError(f"{logs}: no run can be made there: {error.strerror}; set LOGS") from None
    return run


def resume_config(run: RunFolder, overrides: list[str]) -> Pretrain:
    """The config of a run with changes; only keys that leave the run the same run may change."""
    before = run.asked()
    after = resolve(merge(before, parse_overrides(overrides)), source=str(run.config_file))
    changed = _changes(before, to_tree(after))
    spec = keys(after.kind)
    fixed = [name for name in changed if not spec[name].free]
    if fixed:
        free = ", ".join(name for name, info in spec.items() if info.free)
        raise ConfigError(
            f"{', '.join(fixed)}: cannot change when {run.name} is resumed; start a new run with "
            f"{run.config_file} and the change, or change only {free}"
        )
    return after


def claim_attempt(run: RunFolder, overrides: list[str]) -> int:
    """Begin an attempt: its number, claimed by making its folder, with its changes kept in it."""
    changes = _changes(read_tree(run.config_file), to_tree(resume_config(run, overrides)))
    while True:
        number = max(run.attempts(), default=0) + 1
        try:
            run.attempt(number).mkdir(parents=True)
            break
        except FileExistsError:
            continue
    if changes:
        replace_file(run.attempt(number) / "overrides.yaml", dump_yaml(_nested(changes)))
    run.stop_file.unlink(missing_ok=True)
    return number


def _changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    old = flatten(before)
    return {name: value for name, value in flatten(after).items() if old.get(name) != value}


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    return merge({}, flat)


def _batch_job() -> str | None:
    """The id of the batch job that this process is the script of; None in salloc and outside."""
    if os.environ.get("ENVIRONMENT") != "BATCH":
        return None
    return os.environ.get("SLURM_JOB_ID")


def _restarted_run() -> RunFolder | None:
    if not _batch_job() or int(os.environ.get("SLURM_RESTART_COUNT") or 0) == 0:
        return None
    found = [path for path in logs_folder().glob(f"*-{_batch_job()}") if is_run(path)]
    return RunFolder(found[0].resolve()) if found else None


def job_facts() -> dict[str, Any]:
    """What Slurm says of this job, allow-listed; empty outside Slurm."""
    names = {
        "job": "SLURM_JOB_ID",
        "array_job": "SLURM_ARRAY_JOB_ID",
        "array_task": "SLURM_ARRAY_TASK_ID",
        "restarts": "SLURM_RESTART_COUNT",
        "partition": "SLURM_JOB_PARTITION",
        "cluster": "SLURM_CLUSTER_NAME",
        "nodelist": "SLURM_JOB_NODELIST",
    }
    facts = {name: os.environ.get(variable) for name, variable in names.items()}
    return {name: fact for name, fact in facts.items() if fact is not None}


def node_name() -> str:
    """The node's name as Slurm knows it, else the host's."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def free_gb(path: Path) -> float:
    """Free space where `path` lies, in GB."""
    return shutil.disk_usage(path).free / 1e9


__all__ = ["RecordWriter", "RunFolder", "find_runs", "is_run", "open_run"]
