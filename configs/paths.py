"""The paths that a config names: which keys hold one, and the same paths made absolute."""

from pathlib import Path

from configs.load import Kind, flatten, merge, resolve, to_tree
from configs.schema import Run, keys


def with_absolute_paths(config: Kind) -> Kind:
    """Return the config with absolute paths, since a run may be resumed from another folder."""
    paths = config_paths(config)
    absolute = {name: str(Path(path).absolute()) for name, path in paths.items()}
    if absolute == paths:
        return config
    resolved = resolve(merge(to_tree(config), absolute), source=config.kind)
    assert isinstance(resolved, type(config))
    return resolved


def config_paths(config: Run) -> dict[str, str]:
    """Return the paths of a config by their keys."""
    spec = keys(config.kind)
    flat = flatten(to_tree(config))
    return {name: flat[name] for name, info in spec.items() if info.path and flat[name] is not None}
