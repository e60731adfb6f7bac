"""A folder, an environment and a clock that are the same on every machine, for frozen output."""

import contextlib
import io
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runs.folder import ROOT
from tests.corpus import planting


@contextlib.contextmanager
def surroundings(folder: Path) -> Iterator[Path]:
    """Work in `folder`, with LOGS `logs` in it and a Slurm that answers from `answers` in it."""
    folder = folder.resolve()
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.startswith(("SLURM_", "SBATCH_", "SQUEUE_", "SACCT_", "DITBENCH_")):
                patch.delenv(name)
        for name in ("ENVIRONMENT", "ACTIVATED", "ACTIVATED_SITE", "UMASK", "COLUMNS", "LINES"):
            patch.delenv(name, raising=False)
        commands = planting.commands(folder / "commands")
        patch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
        for name, value in {
            "LOGS": folder / "logs", "ANSWERS": folder / "answers", "VENV": sys.prefix,
            "XDG_CACHE_HOME": folder / "cache", "SITE": "local", "TZ": "UTC", "LC_ALL": "C.UTF-8",
        }.items():  # fmt: skip
            patch.setenv(name, str(value))
        patch.chdir(folder)
        time.tzset()
        yield folder
    time.tzset()


def printed(command: Callable[[list[str]], int], *words: str) -> tuple[int, str, str]:
    """Run a command here; return its exit code, and stdout and stderr with relative paths.

    An unexpected error is frozen as its name, so that it does not name a line of the code.
    """
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command([*words])
    # How far it was after two seconds depends on the load of the machine.
    said = re.sub(r"^.* so far\n", "", err.getvalue(), flags=re.M)
    said = re.sub(r"(a bug in ditbench: \w+).*", r"\1", said)
    return code, relative(out.getvalue()), relative(said)


def relative(text: str) -> str:
    """Return text with paths relative to this folder, and to the checkout as CHECKOUT."""
    return text.replace(f"{Path.cwd()}/", "").replace(str(ROOT), "CHECKOUT")


def rounded(value: Any) -> Any:
    """Return JSON data with floats of 6 significant digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list) else value


def rows(text: str) -> list[dict[str, Any]]:
    """Return the rows that a command printed as JSON, rounded; none if it printed none."""
    found: list[dict[str, Any]] = rounded(json.loads(text)) if text else []
    return found


def one_line(fields: dict[str, Any]) -> str:
    """Return fields as `name=value`, for a line that is easy to compare."""
    return " ".join(f"{name}={json.dumps(value)}" for name, value in fields.items())
