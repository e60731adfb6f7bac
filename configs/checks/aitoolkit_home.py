"""Where ai-toolkit is: a checkout with a virtualenv of its own, named by the site."""

import os
from dataclasses import dataclass
from pathlib import Path

from configs.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Home:
    """A checkout of ai-toolkit and the Python of its virtualenv."""

    folder: Path
    python: Path


def find_home() -> Home:
    """What `AI_TOOLKIT` names; `ConfigError` where that is no checkout with a virtualenv."""
    named = os.environ.get("AI_TOOLKIT")
    if not named:
        raise ConfigError(
            "engine aitoolkit needs AI_TOOLKIT, the folder of its checkout: set it in the site "
            "file (env/sites/), make one with env/create.sh ai-toolkit, or set engine=embedded"
        )
    folder = Path(named).expanduser().absolute()
    if not (folder / "run.py").is_file() or not (folder / "toolkit").is_dir():
        raise ConfigError(
            f"AI_TOOLKIT={named}: no checkout of ai-toolkit (it has no run.py and toolkit/); "
            "make one with env/create.sh ai-toolkit"
        )
    for name in ("venv", ".venv"):
        python = folder / name / "bin" / "python"
        if os.access(python, os.X_OK):
            return Home(folder=folder, python=python)
    raise ConfigError(
        f"{folder}: no virtualenv of its own in venv/ or .venv/; env/create.sh ai-toolkit makes it"
    )
