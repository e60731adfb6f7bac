"""Strict loading of configs: files, `key=value` overrides, and errors that name the fix."""

import difflib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from configs.errors import ConfigError
from configs.files import read_text
from configs.schema import KINDS, MODELS, Run, Study, keys
from configs.schema.key import KeyGroup
from configs.schema.removed import removed_key, removed_value
from configs.yaml12 import parse_yaml

Tree = dict[str, Any]
_MOST_DOTS = 20
# A key that is less like an unknown one is no hint.
_LEAST_LIKENESS = 0.7
Kind = TypeVar("Kind", bound=Run)


def read_tree(path: Path) -> Tree:
    """Return the mapping in a YAML file."""
    try:
        text = read_text(path)
    except FileNotFoundError:
        others = [other.name for other in path.parent.glob("*.yaml")]
        near = difflib.get_close_matches(path.name, others, n=1)
        hint = f"; did you mean {path.parent / near[0]}?" if near else ""
        raise ConfigError(f"{path}: no such file{hint}") from None
    except IsADirectoryError:
        raise ConfigError(
            f"{path}: a folder, but neither a config nor a run (it has no config.yaml)"
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    tree = parse_yaml(text, source=str(path))
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: expected keys and values, found {_kind_of(tree)}")
    return tree


def parse_overrides(overrides: list[str]) -> Tree:
    """Parse `["train.steps=200", ...]` to a flat `{dotted key: value}`; values are YAML scalars."""
    flat: Tree = {}
    for override in overrides:
        name, equals, text = override.partition("=")
        if not equals or not name:
            raise ConfigError(f"{override!r}: expected key=value, such as train.steps=200")
        if name.count(".") > _MOST_DOTS:
            raise ConfigError(f"{name[:60]}...: nested deeper than any key")
        flat[name] = parse_yaml(text, source=f"{name}= on the command line")
    return flat


def merge(tree: Tree, flat: Tree) -> Tree:
    """Return a copy of `tree` with the dotted keys of `flat` set."""
    merged = {k: dict(v) if isinstance(v, dict) else v for k, v in tree.items()}
    for name, value in flat.items():
        group, dot, leaf = name.partition(".")
        if not dot:
            merged[name] = value
            continue
        inner = merged.setdefault(group, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{name}: {group} is {_kind_of(inner)}, not a group of keys")
        merged[group] = merge(inner, {leaf: value})
    return merged


def resolve(tree: Tree, *, source: str) -> Run:
    """Return the config of `tree`, with every default filled in and every value validated."""
    kind = tree.get("kind", "pretrain")
    if kind == "study":
        raise ConfigError(f"{source}: a study of many runs; submit it whole: ditbench submit FILE")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ConfigError(f"{source}: kind is {kind!r}; expected one of {', '.join(MODELS)}")
    config = _validated(tree, kind, source=source)
    assert isinstance(config, Run)
    return config


def resolve_study(tree: Tree, *, source: str) -> Study:
    """Return the study of `tree` with its own keys validated; `configs.grid` resolves its cells."""
    study = _validated(tree, "study", source=source)
    assert isinstance(study, Study)
    return study


def _validated(tree: Tree, kind: str, *, source: str) -> KeyGroup:
    try:
        config = MODELS[kind].model_validate(_without_removed(tree, kind))
    except ValidationError as error:
        lines = [_explain(dict(item), kind) for item in error.errors()]
        fits = [name for name in MODELS if set(tree) <= set(MODELS[name].model_fields)]
        if "kind" not in tree and len(fits) == 1 and fits != [kind]:
            lines = [f"no kind; its keys belong to kind: {fits[0]}"]
        raise ConfigError("\n".join(f"{source}: {line}" for line in lines)) from None
    values = flatten(to_tree(config))
    for name, info in keys(kind).items():
        if info.needed and values[name] is None:
            raise ConfigError(f"{source}: {name} must be set: {info.doc}")
    return config


def _without_removed(tree: Tree, kind: str, prefix: str = "") -> Tree:
    """Return a copy of `tree` without removed keys that have their default."""
    kept: Tree = {}
    for name, value in tree.items():
        full = f"{prefix}{name}"
        removed = removed_key(kind, full)
        if removed and full not in keys(kind) and value == removed.default:
            continue
        if isinstance(value, dict):
            inner = _without_removed(value, kind, f"{full}.")
            if value and not inner:
                continue  # the keys of this group are all removed
            value = inner
        kept[name] = value
    return kept


def expect(config: Run, kind: type[Kind], *, source: str | Path) -> Kind:
    """Return the config if it is of `kind`; otherwise raise `ConfigError`, which names its job."""
    if isinstance(config, kind):
        return config
    wanted = next(name for name, known in KINDS.items() if known is kind)
    raise ConfigError(
        f"{source}: its kind is {config.kind}, not {wanted}; it belongs to "
        f"jobs/{config.kind}.sbatch"
    )


def load(path: Path, overrides: list[str] | None = None) -> Run:
    """Load the config in a YAML file, with `key=value` overrides applied."""
    tree = merge(read_tree(path), parse_overrides(overrides or []))
    refuse_command(tree, source=path)
    return resolve(tree, source=str(path))


def refuse_command(tree: Tree, *, source: Path) -> None:
    """Raise `ConfigError` for the config of a batch script, which is submitted itself."""
    if tree.get("kind") == "command":
        raise ConfigError(
            f"{source}: kind: command is how the run of a batch script is written down; submit "
            "the script itself: ditbench submit SCRIPT"
        )


def to_tree(config: KeyGroup) -> Tree:
    """Return every key of a config as plain values, nested as in YAML."""
    return config.model_dump(mode="python")


def flatten(tree: Tree, prefix: str = "") -> Tree:
    """Return a nested config as `{dotted key: value}`."""
    flat: Tree = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _explain(error: dict[str, Any], kind: str) -> str:
    """Describe one validation error on a line that names the key and the fix."""
    location = [str(part) for part in error["loc"]]
    name = ".".join(location)
    found = error.get("input")
    if error["type"] == "extra_forbidden":
        if removed := removed_key(kind, name):
            return f"{name}: removed; {removed.instead}"
        return f"unknown key {name}{_nearest(name, kind)}"
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    if error["type"] in ("model_type", "model_attributes_type"):
        return f"{name}: expected a group of keys, found {_kind_of(found)}"
    if instead := removed_value(name, found):
        return f"{name} {found}: removed; {instead}"
    spec = keys(kind).get(name)
    unit = f" ({spec.unit})" if spec and spec.unit else ""
    expected = error["msg"].removeprefix("Input should be ")
    return f"{name}{unit}: expected {expected}, found {_kind_of(found)}"


def _nearest(name: str, kind: str) -> str:
    """Return a hint: the key or group that is nearest, by its last word or as a whole."""
    known = keys(kind)
    groups = (key.partition(".")[0] for key in known)
    near = max([*known, *groups], key=lambda key: _likeness(name, key))
    if _likeness(name, near) > _LEAST_LIKENESS:
        return f"; did you mean {near}?"
    return f"; `ditbench show {kind}` lists them all"


def _likeness(name: str, key: str) -> float:
    """Return, up to 1, how much a key is like `name`, whatever dots it lacks."""
    (group, _, leaf), (own, _, last) = key.rpartition("."), name.rpartition(".")
    by_leaf = 0.9 * _ratio(last, leaf) + 0.1 * _ratio(own, group)
    by_token = 0.85 * (last in leaf.split("_"))
    return max(by_leaf, by_token, _ratio(_letters(name), _letters(key)))


def _ratio(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()


def _letters(name: str) -> str:
    return name.replace(".", "").replace("_", "").casefold()


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "a group of keys"
    if isinstance(value, list):
        return "a list"
    words = {bool: "true/false", int: "integer", float: "number", str: "text"}
    return f"the {words.get(type(value), type(value).__name__)} {value!r}"
