"""Read a site file through the shell that it is written for."""

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from configs.errors import ConfigError
from configs.schema.training import Resources
from launch.slurm import client
from launch.slurm.flags import Flags, parse_flags


@dataclass(frozen=True, kw_only=True)
class Site:
    """A cluster: its name, the folders of runs and of its Python, and the flags of a job.

    `container` is the image in which training runs, "" for none.
    """

    name: str
    logs: Path
    umask: str
    venv: Path
    container: str
    flags: Flags

    def exports(self) -> dict[str, str]:
        """Return the variables that a job needs because it runs from a snapshot."""
        values = {"SITE": self.name, "LOGS": self.logs, "UMASK": self.umask, "VENV": self.venv}
        values |= {"CONTAINER": self.container} if self.container else {}
        return {name: str(value) for name, value in values.items()}


def read_site(root: Path, resources: Resources, *, name: str | None) -> Site:
    """Return the site called `name`, or this host's, with its flags for these resources."""
    gpus = str(resources.gpus_per_node)
    found, logs, umask, venv, container, *words = _describe(
        root, resources.gpu or "", str(resources.nodes), gpus, name=name
    )
    return Site(
        name=found,
        logs=Path(logs).resolve(),
        umask=umask,
        venv=Path(venv).absolute(),
        container=container,
        flags=parse_flags(words, source=f"env/sites/{found}.sh"),
    )


def site_logs(root: Path) -> Path:
    """Return the folder of this host's runs."""
    return Path(_describe(root, "", "1", "0", name=None)[1]).resolve()


def _describe(root: Path, *resources: str, name: str | None) -> list[str]:
    command = [str(root / "env" / "describe.sh"), *resources]
    environment = os.environ | ({"SITE": name, "ACTIVATED_SITE": ""} if name else {})
    answer = subprocess.run(command, env=environment, capture_output=True, check=False)
    if answer.returncode:
        raise ConfigError(answer.stderr.decode(errors="replace").strip())
    return os.fsdecode(answer.stdout).split("\0")[:-1]


def check_site(site: Site) -> list[str]:
    """Raise `ConfigError` for a site on which every job would fail on its first line.

    Return a remark if a cluster has no site file.
    """
    if not os.access(site.venv / "bin" / "python", os.X_OK):
        raise ConfigError(f"no virtualenv in {site.venv}; create it with env/create.sh")
    parent = next(folder for folder in (site.logs, *site.logs.parents) if folder.exists())
    try:
        # Some file systems only pretend that a folder can be written to.
        tempfile.TemporaryFile(dir=parent).close()
    except OSError:
        raise ConfigError(
            f"LOGS {site.logs}: not writable; set LOGS to a writable folder"
        ) from None
    has_none = site.name == "local" and client.is_installed()
    return ["no site file describes this cluster: ditbench doctor writes one"] if has_none else []


def check_logs_name(site: Site) -> None:
    """Raise `ConfigError` for a folder of runs whose path cannot be written in a batch script."""
    if not str(site.logs).isprintable() or "\\" in str(site.logs):
        raise ConfigError(
            f"LOGS {str(site.logs)!r}: Slurm cannot take this path; set LOGS to a folder "
            "without backslashes and control characters"
        )
