"""Read the keys that ai-toolkit knows from its source, for configs/checks/aitoolkit-keys.yaml."""

import ast
from collections.abc import Iterator
from pathlib import Path

_CLASSES = "toolkit/config_modules.py"
# The files in which a process reads the keys of its config; GROUPS: the class of each group.
_PROCESS = (
    "jobs/process/BaseProcess.py",
    "jobs/process/BaseTrainProcess.py",
    "jobs/process/BaseSDTrainProcess.py",
    "extensions_built_in/sd_trainer/SDTrainer.py",
    "extensions_built_in/sd_trainer/DiffusionTrainer.py",
)
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


def read_keys(folder: Path) -> dict[str, frozenset[str]]:
    """Return the keys that the source of ai-toolkit in `folder` reads; none of it is executed."""
    classes = {
        node.name: node
        for node in ast.walk(_tree(folder / _CLASSES))
        if isinstance(node, ast.ClassDef)
    }
    found = {
        group: frozenset(_arguments(classes[name], "kwargs", ("get", "pop")))
        for group, name in GROUPS.items()
        if name in classes
    }
    process = {
        key
        for file in _PROCESS
        for key in (
            *_arguments(_tree(folder / file), "self", ("get_conf",)),
            *_arguments(_tree(folder / file), "self.config", ("get",)),
        )
    }
    return {"": frozenset(process), **found}


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _arguments(tree: ast.AST, owner: str, methods: tuple[str, ...]) -> Iterator[str]:
    """Yield each "name" of the calls `owner.method("name", ...)`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr not in methods or ast.unparse(node.func.value) != owner:
            continue
        if node.args and isinstance(node.args[0], ast.Constant):
            yield str(node.args[0].value)
