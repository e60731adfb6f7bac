"""How a command of ai-toolkit's virtualenv is run apart from ours, and what is in there."""

import ast
import json
import os
import subprocess
from pathlib import Path

from configs.checks.aitoolkit_home import Home
from train.engine.distributed import TORCHRUN_VARIABLES

# Ours would be imported in place of its own; what torchrun set would make its accelerate wait for
# peers; and with HF_HUB_OFFLINE it loads Flux schnell not even from local files.
_OURS = frozenset(
    (
        *TORCHRUN_VARIABLES,
        "PYTHONPATH", "PYTHONSAFEPATH", "PYTHONHOME", "VIRTUAL_ENV", "HF_HUB_OFFLINE", "SEED",
    )
)  # fmt: skip
_PACKAGES = (
    "torch", "diffusers", "transformers", "peft", "accelerate", "bitsandbytes", "optimum-quanto",
    "torchao", "safetensors",
)  # fmt: skip
_ASK_VERSIONS = """
import importlib.metadata as metadata, json, platform, sys
found = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def environment() -> dict[str, str]:
    """This environment without what is ours alone."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in _OURS and not name.startswith("TORCHELASTIC_")
    }
    return kept | {"PYTHONUNBUFFERED": "1"}


def versions(home: Home) -> dict[str, str]:
    """Versions of ai-toolkit (with its commit, where git knows it) and of what it computes with."""
    asked = _answer([str(home.python), "-c", _ASK_VERSIONS, *_PACKAGES])
    found: dict[str, str] = json.loads(asked) if asked else {}
    # Without one of its own, git would answer for a checkout around it.
    ask_git = ["git", "-C", str(home.folder), "rev-parse", "--short=10", "HEAD"]
    commit = _answer(ask_git) if (home.folder / ".git").exists() else None
    number = _version_of(home.folder / "version.py")
    told = " ".join(part for part in (number, commit) if part)
    return found | ({"ai-toolkit": told} if told else {})


def _version_of(file: Path) -> str | None:
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            return str(node.value.value)
    return None


def _answer(command: list[str]) -> str | None:
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=False, timeout=120
    )
    return done.stdout.strip() if done.returncode == 0 else None
