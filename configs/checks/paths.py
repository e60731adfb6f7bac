"""The paths that a config names: as seen from anywhere, and there before anything is queued."""

from collections.abc import Callable
from pathlib import Path

from configs.checks.inputs import check_inputs
from configs.errors import ConfigError
from configs.load import Kind, flatten, merge, read_tree, resolve, to_tree
from configs.run.folder import is_run
from configs.schema import Run, keys


def _is_run_of(kind: str) -> Callable[[Path], bool]:
    def is_there(path: Path) -> bool:
        return is_run(path) and read_tree(path / "config.yaml").get("kind", "pretrain") == kind

    return is_there


# What must stand at a path, by the schema's word for it.
_KINDS: dict[str, tuple[str, Callable[[Path], bool]]] = {
    "folder": ("folder", Path.is_dir),
    "file": ("file", Path.is_file),
    "either": ("file or folder", Path.exists),
    "pretraining run": ("folder of a pretraining run", _is_run_of("pretrain")),
    "fine-tuning run": ("folder of a fine-tuning run", _is_run_of("finetune")),
}


def with_absolute_paths(config: Kind) -> Kind:
    """The config with absolute paths: a run is resumed from other folders too."""
    paths = _paths(config)
    absolute = {name: str(Path(path).absolute()) for name, path in paths.items()}
    if absolute == paths:
        return config
    resolved = resolve(merge(to_tree(config), absolute), source=config.kind)
    assert isinstance(resolved, type(config))
    return resolved


def check_paths(config: Run) -> None:
    """Refuse a path where what the key wants is not there, or cannot be what it wants."""
    spec = keys(config.kind)
    for name, path in _paths(config).items():
        wanted = spec[name].path
        if wanted in _KINDS:
            word, is_there = _KINDS[wanted]
            if not is_there(Path(path)):
                raise ConfigError(f"{name} {path}: {_said(Path(path), word)}")
    check_inputs(config)


def _said(path: Path, word: str) -> str:
    if word == "file" and path.is_dir():
        inside = sorted(file.name for file in path.glob("*.safetensors"))
        hint = f", such as {inside[0]}" if inside else ""
        return f"a folder, where a file is wanted; name the file in it{hint}"
    return f"no such {word}; make it or name another"


def _paths(config: Run) -> dict[str, str]:
    spec = keys(config.kind)
    flat = flatten(to_tree(config))
    return {name: flat[name] for name, info in spec.items() if info.path and flat[name] is not None}
