"""`ditbench check`: look what each X is, and whether it is sound; nothing is asked or submitted.

Modules that need packages are imported where they are used: any Python 3.11 checks a batch script.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from configs.errors import ConfigError
from launch.check.kinds import CHECKABLE, kind_of
from launch.lint.lint import print_findings
from launch.lint.script import read_script
from launch.slurm import client

# The part whose `check-data` reads data of a kind, and the flags that it takes.
_DATA = {
    "captioned images": ("finetune", ("trigger", "resolution")),
    "images by class": ("train", ("fast",)),
    "latents": ("train", ("vae", "fast")),
}
Flags = Mapping[str, str | bool]


def check(words: list[str], flags: Flags) -> int:
    """Check each path of `words`, configs with its `key=value`; return the worst exit code.

    0 means sound, 1 that a script or data has problems, 2 that something is invalid or unknown.
    """
    overrides = [word for word in words if "=" in word and not os.path.exists(word)]
    paths = [Path(word) for word in words if word not in overrides]
    if not paths:
        raise ConfigError(f"{overrides[0]}: names no file; name a config before key=value")
    codes = []
    for path in paths:
        try:
            codes.append(_check(path, overrides, flags))
        except ConfigError as error:
            print(error, file=sys.stderr)
            codes.append(2)
    return max(codes)


def _check(path: Path, overrides: list[str], flags: Flags) -> int:
    if not path.exists():
        from runs.lookup import look_up

        path = look_up(str(path))
    kind = kind_of(path)
    if kind is None:
        raise ConfigError(f"{path}: not recognised; check takes {CHECKABLE}")
    flags_of = {"batch script": ("slurm",)}
    part, known = _DATA.get(kind, ("finetune", flags_of.get(kind, ())))
    if other := sorted(set(flags) - set(known)):
        raise ConfigError(f"--{other[0]}: does not apply to {path}, a {kind}")
    if kind == "batch script":
        return print_findings(read_script(path), version=_version(flags))
    if kind in _DATA:
        return _check_data(part, path, overrides if part == "finetune" else [], flags)
    from launch.check.config import check_config, check_lora
    from launch.script.request import is_of_a_script, script_study

    if kind == "LoRA":
        return check_lora(path)
    if is_of_a_script(path):
        study = script_study(path)
        return print_findings(read_script(Path(str(study.base))), version=client.version())
    what, images = check_config(path, overrides)
    print(f"{path}: {what}: good", flush=True)
    return _check_data(part, path, overrides, flags) if images else 0


def _version(flags: Flags) -> str | None:
    """Return the version of Slurm that `--slurm` names, else the installed one."""
    if "slurm" not in flags:
        return client.version()
    version = str(flags["slurm"])
    if not re.fullmatch(r"\d+\.\d+(\.\d+)?", version):
        raise ConfigError(f"--slurm={version}: invalid version; name it as in 24.11")
    return version


def _check_data(part: str, path: Path, overrides: list[str], flags: Flags) -> int:
    """Run the check of a part that launch does not import."""
    from runs.folder import ROOT

    words = [f"--{name}" if value is True else f"--{name}={value}" for name, value in flags.items()]
    done = subprocess.run(
        [sys.executable, "-m", part, "check-data", str(path), *overrides, *words],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"},
        check=False,
    )
    return done.returncode
