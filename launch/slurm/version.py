"""Versions of Slurm: which range one is in, and what changed that concerns a site.

Sources: Slurm's release notes. What the linter has a rule for was also tried on the one-machine
Slurm of 20.11, 22.05, 24.11 and 26.05 (tests/slurm/test_rules_of_requests.py).
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class VersionRange:
    """Versions of Slurm from `since` on and before `until`; None is no bound."""

    since: str | None = None
    until: str | None = None

    def holds(self, version: str | None) -> bool:
        """Return whether a version such as `24.11.5` is in the range; True if it is unknown."""
        if version is None:
            return True
        release = _numbers(version)
        begun = self.since is None or _numbers(self.since) <= release
        return begun and (self.until is None or release < _numbers(self.until))

    def __str__(self) -> str:
        if self.since and self.until:
            return f"Slurm {self.since} to before {self.until}"
        if self.until:
            return f"Slurm before {self.until}"
        return f"Slurm {self.since} or later" if self.since else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))


@dataclass(frozen=True, kw_only=True)
class VersionNote:
    """A behaviour of some versions; `setting` is text in `scontrol show config` that it needs."""

    versions: VersionRange
    text: str
    setting: str = ""


CHANGES = (
    VersionNote(
        versions=VersionRange(until="23.02"),
        text="a job whose --output folder does not exist fails before its first line",
    ),
    VersionNote(
        versions=VersionRange(since="22.05", until="23.11"),
        text="srun does not inherit --cpus-per-task; jobs here pass it on",
    ),
    VersionNote(
        versions=VersionRange(since="23.11", until="26.05"),
        text="srun refuses --ntasks-per-gpu in a job with --cpus-per-task or --gpus-per-task",
    ),
    VersionNote(
        versions=VersionRange(since="24.05"),
        setting="enable_stepmgr",
        text="the first node of a job starts its steps: a job that loses it loses all steps",
    ),
    VersionNote(
        versions=VersionRange(since="24.11"),
        text="srun --gpus=N gives a step N GPUs in all, whatever the job has per node",
    ),
    VersionNote(
        versions=VersionRange(since="24.11"),
        setting="OOMKillStep",
        text="a process that runs out of memory ends its whole step on all nodes",
    ),
    VersionNote(
        versions=VersionRange(until="25.05.3"),
        text="with --time-min, backfill may cut the time limit down to it",
    ),
    VersionNote(
        versions=VersionRange(since="25.05"),
        setting="cgroup/v1",
        text="cgroup v1 is deprecated",
    ),
    VersionNote(
        versions=VersionRange(since="26.05"),
        text="sbatch refuses --gres=gpu together with --gpus-per-node; site_flags may use one only",
    ),
)


def changes(version: str, config: str) -> list[str]:
    """Return what concerns a version and the text of its `scontrol show config`."""
    return [
        change.text
        for change in CHANGES
        if change.versions.holds(version) and change.setting in config
    ]
