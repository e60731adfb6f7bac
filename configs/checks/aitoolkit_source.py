"""The checkout of ai-toolkit, and what it knows: keys, kinds of model, their defaults and parts.

Its source is parsed, never executed, so that this needs neither torch nor a GPU and holds for any
commit. The layout is that of v0.12.26 (commit 27a03a91), with which it is tested.
"""

import ast
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from configs.errors import ConfigError
from configs.files import read_text
from configs.yaml12 import parse_yaml

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
_MODELS = ("toolkit/models/*.py", "toolkit/models/wan21/*.py", "extensions*/**/*.py")
_MODEL_CODE = re.compile(r"\barch\b *[:=]|def load_model")
# Models of its older code are told apart by comparisons in that file.
_OLDER = re.compile(r"self\.arch == ['\"]([\w.-]+)['\"]")
# The table of its user interface: what it sets when a model is chosen.
_TABLE = "ui/src/app/jobs/new/options.tsx"
_DEFAULT_SAMPLES = "ui/src/helpers/defaultSamples.ts"
_DEFAULT = re.compile(r"'config\.process\[0\]\.([\w.\[\]]+)':\s*(?=\[)")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]+/[A-Za-z][\w.-]*\w")
# Parts of a model folder, and files in them.
_PART = re.compile(r".*/(processor|tokenizer|text_encoder|transformer|vae)|.*\.(safetensors|json)")


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


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A kind of model: what its code names, which may be loaded from the hub.

    `keys` are the names of tensors that the code reads from files, such as from an assistant LoRA.
    """

    name: str
    hub_ids: tuple[str, ...]
    keys: tuple[str, ...]


@cache
def known_keys(folder: Path) -> Mapping[str, frozenset[str]]:
    """Return the keys that ai-toolkit reads, by group (top level: "")."""
    classes = _classes(folder / _CLASSES)
    found = {
        group: frozenset(_arguments(classes[name], "kwargs", ("get", "pop")))
        for group, name in GROUPS.items()
        if name in classes
    }
    process = set[str]()
    for file in _PROCESS:
        tree = _tree(folder / file)
        process |= set(_arguments(tree, "self", ("get_conf",)))
        process |= set(_arguments(tree, "self.config", ("get",)))
    return {"": frozenset(process), **found}


@cache
def architectures(folder: Path) -> Mapping[str, Architecture]:
    """Return the kinds of model that `model.arch` can name."""
    modules = [file for pattern in _MODELS for file in sorted(folder.glob(pattern))]
    trees = {file: _tree(file) for file in modules if _MODEL_CODE.search(read_text(file))}
    classes = {
        node.name: (file, node)
        for file, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
    found = {}
    for _, node in classes.values():
        if name := _class_text(node, "arch"):
            texts = [*_texts_of(node, classes, trees)]
            found[name] = Architecture(
                name=name,
                hub_ids=tuple(sorted(filter(_is_hub_id, set(texts)))),
                keys=tuple(sorted({text for text in texts if text.endswith(".lora_A.weight")})),
            )
    for name in _OLDER.findall(read_text(folder / _CLASSES)):
        found.setdefault(name, Architecture(name=name, hub_ids=(), keys=()))
    return found


@cache
def defaults(folder: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return what its user interface sets for each model, by name (`arch` or `arch:tag`).

    The keys are dotted, such as `sample.guidance_scale`.
    """
    table = folder / _TABLE
    if not table.is_file():
        return {}
    text = re.sub(r"(?m)^\s*//.*$", "", read_text(table))
    entries = re.split(r"\n    name: '([\w.:-]+)',", text)
    shared = _default_samples(folder / _DEFAULT_SAMPLES)
    return {
        name: shared | _defaults_of(entry)
        for name, entry in zip(entries[1::2], entries[2::2], strict=True)
    }


def _default_samples(file: Path) -> dict[str, Any]:
    text = read_text(file) if file.is_file() else ""
    names = ("width", "height", "guidance_scale", "sample_steps")
    found = {name: re.search(rf"\b{name}: ([\d.]+)", text) for name in names}
    return {
        f"sample.{name}": parse_yaml(match[1], source=str(file))
        for name, match in found.items()
        if match
    }


def _defaults_of(entry: str) -> dict[str, Any]:
    """Return the first value of each pair `'config.process[0].KEY': [chosen, otherwise]`."""
    gate = re.search(r"gateUrl: '([^']+)'", entry)
    found: dict[str, Any] = {"gate": gate[1]} if gate else {}
    for match in _DEFAULT.finditer(entry):
        pair = entry[match.end() : _closing(entry, match.end())]
        with suppress(ConfigError):
            value = parse_yaml(pair.replace("undefined", "null"), source="")[0]
            if value not in (None, "", {}):
                found[match[1].replace("[x]", "")] = value
    return found


def _closing(text: str, begin: int) -> int:
    """Return the end of the bracket that opens at `begin`."""
    depth = 0
    for place in range(begin, len(text)):
        depth += (text[place] in "[{") - (text[place] in "]}")
        if depth == 0:
            return place + 1
    return len(text)


def _texts_of(
    node: ast.ClassDef,
    classes: Mapping[str, tuple[Path, ast.ClassDef]],
    trees: Mapping[Path, ast.Module],
) -> Iterator[str]:
    """Yield the texts in a class and its bases, and in what these use of their modules.

    What a class overrides is left out, unless its own method calls that of the base.
    """
    hidden, line = set[str](), [node]
    while line:
        each = line.pop(0)
        file, _ = classes[each.name]
        yield from _texts(trees[file], [p for p in each.body if _target(p) not in hidden])
        hidden |= {name for p in each.body if (name := _target(p)) and not _calls_base(p)}
        for base in each.bases:
            if isinstance(base, ast.Name) and base.id in classes and base.id != each.name:
                line.append(classes[base.id][1])


def _texts(module: ast.Module, parts: list[ast.stmt]) -> Iterator[str]:
    """Yield the texts in parts of a module, and in the constants and functions that they name."""
    others = {_target(p): p for p in module.body if not isinstance(p, ast.ClassDef)}
    left = list(parts)
    while left:
        for node in ast.walk(left.pop()):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.Name) and node.id in others:
                left.append(others.pop(node.id))


def _calls_base(part: ast.stmt) -> bool:
    return isinstance(part, ast.FunctionDef) and f"super().{part.name}(" in ast.unparse(part)


def _target(part: ast.stmt) -> str | None:
    """Return the name that a statement of a class assigns, or that it defines."""
    if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
        return part.target.id
    if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name):
        return part.targets[0].id
    return part.name if isinstance(part, ast.FunctionDef) else None


def _class_text(node: ast.ClassDef, name: str) -> str | None:
    for part in node.body:
        if isinstance(part, ast.Assign | ast.AnnAssign) and _target(part) == name:
            value = part.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                return value.value
    return None


def _is_hub_id(text: str) -> bool:
    return bool(_HUB_ID.fullmatch(text)) and not _PART.fullmatch(text)


def _classes(file: Path) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in ast.walk(_tree(file)) if isinstance(node, ast.ClassDef)}


def _tree(file: Path) -> ast.Module:
    try:
        return ast.parse(read_text(file))
    except (OSError, SyntaxError) as error:
        raise ConfigError(
            f"{file}: cannot be read as source of ai-toolkit ({error}); copy the checkout again"
        ) from None


def _arguments(tree: ast.AST, owner: str, methods: tuple[str, ...]) -> Iterator[str]:
    """Yield each "name" of the calls `owner.method("name", ...)`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr not in methods or ast.unparse(node.func.value) != owner:
            continue
        if node.args and isinstance(node.args[0], ast.Constant):
            yield str(node.args[0].value)
