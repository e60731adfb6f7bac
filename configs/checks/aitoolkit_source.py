"""The checkout of ai-toolkit, and what it knows: keys, and kinds of model.

Its source is searched, never executed, so that this needs neither torch nor a GPU and holds for any
commit. It expects the layout of v0.12.26 (commit 27a03a91), with which it is tested.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from configs.errors import ConfigError
from configs.files import read_text

_CLASSES = "toolkit/config_modules.py"
# The files in which a process reads the keys of its config.
_PROCESS = (
    "jobs/process/BaseProcess.py",
    "jobs/process/BaseTrainProcess.py",
    "jobs/process/BaseSDTrainProcess.py",
    "extensions_built_in/sd_trainer/SDTrainer.py",
    "extensions_built_in/sd_trainer/DiffusionTrainer.py",
)
# The groups of its config, and the class that reads each; other keys stand at the top level.
GROUPS = {
    "adapter": "AdapterConfig",
    "datasets": "DatasetConfig",
    "embedding": "EmbeddingConfig",
    "first_sample": "SampleConfig",
    "guidance": "GuidanceConfig",
    "logging": "LoggingConfig",
    "model": "ModelConfig",
    "network": "NetworkConfig",
    "sample": "SampleConfig",
    "save": "SaveConfig",
    "train": "TrainConfig",
}
_KEY_OF_GROUP = re.compile(r"\bkwargs\.(?:get|pop)\(\s*['\"](\w+)")
_KEY = re.compile(r"\bself\.(?:get_conf|config\.get)\(\s*['\"](\w+)")
_MODELS = ("toolkit/models/*.py", "toolkit/models/wan21/*.py", "extensions*/**/*.py")
# A class of a model, its base, and the name of the kind of model in it. Kinds of older code are
# told apart by comparisons.
_CLASS = re.compile(r"^class (\w+)(?:\((\w+))?.*\n((?:(?: .*)?\n)*)", re.M)
_ARCH = re.compile(r"^    arch\b[^=\n]*= *['\"]([\w.-]+)['\"]", re.M)
_OLDER = re.compile(r"self\.arch == ['\"]([\w.-]+)['\"]")
# An id of the hub, unless it is a part of a model folder or a file in one.
_HUB_ID = re.compile(r"['\"]([A-Za-z0-9][\w.-]+/[A-Za-z][\w.-]*\w)['\"]")
_PART = re.compile(r".*/(processor|tokenizer|text_encoder|transformer|vae)|.*\.(safetensors|json)")
_CONSTANT = re.compile(r"^(\w+) *= *(.*)", re.M)


@dataclass(frozen=True, kw_only=True)
class Home:
    """A checkout of ai-toolkit and the Python of its own virtualenv."""

    folder: Path
    python: Path


def find_home() -> Home:
    """Return the checkout that `AI_TOOLKIT` names; raise `ConfigError` if it is not complete."""
    named = os.environ.get("AI_TOOLKIT")
    if not named:
        raise ConfigError(
            "engine aitoolkit needs AI_TOOLKIT, the folder of its checkout: set it in the site "
            "file (env/sites/), create one with env/create.sh ai-toolkit, or set engine=embedded"
        )
    folder = Path(named).expanduser().absolute()
    if not (folder / "run.py").is_file() or not (folder / "toolkit").is_dir():
        raise ConfigError(
            f"AI_TOOLKIT={named}: not a checkout of ai-toolkit (it has no run.py and toolkit/); "
            "create one with env/create.sh ai-toolkit"
        )
    for name in ("venv", ".venv"):
        python = folder / name / "bin" / "python"
        if os.access(python, os.X_OK):
            return Home(folder=folder, python=python)
    raise ConfigError(
        f"{folder}: no virtualenv of its own in venv/ or .venv/; env/create.sh ai-toolkit "
        "creates it"
    )


@cache
def known_keys(folder: Path) -> Mapping[str, frozenset[str]]:
    """Return the keys that ai-toolkit reads, by group (top level: "")."""
    bodies = {name: body for name, _, body in _CLASS.findall(_source(folder / _CLASSES))}
    found = {
        group: frozenset(_KEY_OF_GROUP.findall(bodies[name]))
        for group, name in GROUPS.items()
        if name in bodies
    }
    process = {name for file in _PROCESS for name in _KEY.findall(_source(folder / file))}
    return {"": frozenset(process), **found}


@cache
def architectures(folder: Path) -> Mapping[str, frozenset[str]]:
    """Return the kinds of model that `model.arch` can name, with the ids of the hub in their code.

    These are in the class of a model, in its bases, and in the constants that they name.
    """
    texts = [_source(file) for pattern in _MODELS for file in sorted(folder.glob(pattern))]
    classes = dict[str, tuple[str, str]]()
    for text in texts:
        constants = dict(_CONSTANT.findall(text))
        for name, base, body in _CLASS.findall(text):
            used = [constants[word] for word in {*re.findall(r"\w+", body)} & {*constants}]
            classes[name] = base, "\n".join([body, *used])
    found = dict.fromkeys(_OLDER.findall(_source(folder / _CLASSES)), frozenset[str]())
    for name, (_, body) in classes.items():
        if arch := _ARCH.search(body):
            found[arch[1]] = frozenset(_hub_ids(name, classes))
    return found


def _hub_ids(name: str, classes: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    seen = set[str]()
    while name in classes and name not in seen:
        seen.add(name)
        name, body = classes[name]
        yield from (each for each in _HUB_ID.findall(body) if not _PART.fullmatch(each))


def _source(file: Path) -> str:
    try:
        return read_text(file)
    except OSError as error:
        raise ConfigError(
            f"{file}: cannot be read as source of ai-toolkit ({error}); copy the checkout again"
        ) from None
