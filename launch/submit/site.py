"""What the site file says of a job, asked of the shell that it is written for."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from configs.errors import ConfigError
from configs.schema.training import Resources
from launch.slurm.flags import Flags, parse_flags


@dataclass(frozen=True, kw_only=True)
class Site:
    """A cluster: its name, where runs and the virtualenv are, and the flags that a job needs."""

    name: str
    logs: Path
    umask: str
    venv: Path
    flags: Flags

    def exports(self) -> dict[str, str]:
        """What a job from a snapshot cannot find beside itself."""
        said = {"SITE": self.name, "LOGS": self.logs, "UMASK": self.umask, "VENV": self.venv}
        return {name: str(value) for name, value in said.items()}


def ask_site(root: Path, resources: Resources, *, name: str | None) -> Site:
    """The site called `name`, else that of this host, and its flags for these resources."""
    gpus = str(resources.gpus_per_node)
    said, logs, umask, venv, *words = _describe(
        root, resources.gpu or "", str(resources.nodes), gpus, name=name
    )
    return Site(
        name=said,
        logs=Path(logs).resolve(),
        umask=umask,
        venv=Path(venv).absolute(),
        flags=parse_flags(words, source=f"env/sites/{said}.sh"),
    )


def logs_of_site(root: Path) -> Path:
    """Where this host's runs are kept."""
    return Path(_describe(root, "", "1", "0", name=None)[1]).resolve()


def _describe(root: Path, *resources: str, name: str | None) -> list[str]:
    answer = subprocess.run(
        [root / "env" / "describe.sh", *resources],
        env=os.environ | ({"SITE": name} if name else {}),
        capture_output=True,
        check=False,
    )
    if answer.returncode:
        raise ConfigError(answer.stderr.decode(errors="replace").strip())
    return os.fsdecode(answer.stdout).split("\0")[:-1]


def check_site(site: Site) -> None:
    """Refuse, before a job is queued, what it would die of on its first line."""
    if not os.access(site.venv / "bin" / "python", os.X_OK):
        raise ConfigError(f"no virtualenv in {site.venv}; make it with env/create.sh")
    if not str(site.logs).isprintable() or "\\" in str(site.logs):
        raise ConfigError(
            f"LOGS {str(site.logs)!r}: Slurm cannot be given this path; set LOGS to a folder "
            "without backslashes and control characters"
        )
    there = next(folder for folder in (site.logs, *site.logs.parents) if folder.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(f"LOGS {site.logs}: cannot be written; set LOGS to a folder that can be")
