"""YAML with the scalars of YAML 1.2: `1e-4` is a number, and `no`, `12:30:00` are text."""

import json
import math
import re
from contextlib import suppress
from typing import Any

import yaml

from configs.errors import ConfigError

_DEEPEST, _MOST_ALIASES, _MOST_DIGITS = 50, 100, 300
# ASCII without tabs, tags and `>#`, which libyaml reads otherwise than PyYAML.
_SIMPLE = re.compile(r'(?!.*[>|][-+0-9]*#)[\n "-~]*', re.DOTALL)


class _Loader(yaml.SafeLoader):
    """Safe YAML with the scalars of the core schema of YAML 1.2; duplicate keys are an error."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012
    _depth = _anchors = _aliases = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        is_alias = isinstance(event, yaml.AliasEvent)
        self._aliases += is_alias
        # Aliases of aliases, in a few lines, can stand for more than the memory holds.
        if self._aliases > _MOST_ALIASES or (is_alias and self._anchors):
            raise self._refusal(event, f"too many aliases; write the value of *{event.anchor} out")
        if self._depth > _DEEPEST:
            raise self._refusal(event, f"nested more than {_DEEPEST} levels deep")
        is_anchor = bool(event.anchor) and not is_alias
        self._depth, self._anchors = self._depth + 1, self._anchors + is_anchor
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth, self._anchors = self._depth - 1, self._anchors - is_anchor
        return node

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> str:
        text: str = super().construct_scalar(node)
        if re.search("[\0\ud800-\udfff]", text):
            raise self._refusal(node, "holds a character that no file or name can hold")
        return text

    def _refusal(self, place: yaml.Event | yaml.Node, why: str) -> ConfigError:
        line = place.start_mark.line + 1 if place.start_mark else "?"
        return ConfigError(f"line {line}: {why}")

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            name = self.construct_object(key_node, deep=True)
            if not isinstance(name, str):
                raise self._refusal(key_node, "a key must be text")
            if name in seen:
                raise self._refusal(key_node, f"{name} is given twice")
            seen.add(name)
        return super().construct_mapping(node, deep=deep)

    def construct_int(self, node: yaml.ScalarNode) -> int:
        text = self.construct_scalar(node)
        if len(text) > _MOST_DIGITS:
            raise self._refusal(node, f"a number of {len(text)} digits")
        return int(text, 0 if text[:2] in ("0o", "0x") else 10)

    def construct_float(self, node: yaml.ScalarNode) -> float:
        text = self.construct_scalar(node).lower()
        special = {".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}
        return special[text] if text in special else float(text)


class _FastLoader(_Loader):
    """The same with libyaml's parser, which takes a tenth of the time, but words errors badly."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        parser = yaml.CSafeLoader(text)
        names = ("check_event", "peek_event", "get_event")
        vars(self).update({name: getattr(parser, name) for name in names})


class _Dumper(yaml.SafeDumper):
    """Quote text that YAML 1.1 or 1.2 would read as another type; write 1e-4 as 1.0e-04."""

    def represent_float(self, value: float) -> yaml.ScalarNode:
        mantissa, exponent, power = super().represent_float(value).value.partition("e")
        point = ".0" if exponent and "." not in mantissa else ""
        text = f"{mantissa}{point}{exponent}{power}"
        return self.represent_scalar("tag:yaml.org,2002:float", text)


_Dumper.add_representer(float, _Dumper.represent_float)

# YAML 1.2.2, section 10.3.2: the tags of plain scalars (core schema) with their first letters.
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
):
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(
            f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first
        )
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_float)


def parse_yaml(text: str, *, source: str) -> Any:
    """Parse YAML 1.2; raise `ConfigError`, which names `source` and the line, if it is invalid."""
    try:
        if yaml.__with_libyaml__ and _SIMPLE.fullmatch(text):
            with suppress(yaml.YAMLError):
                return yaml.load(text, Loader=_FastLoader)  # noqa: S506
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - _Loader is a SafeLoader
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", error)
        raise ConfigError(f"{source}{where}: not valid YAML: {problem}") from None


def dump_yaml(tree: dict[str, Any]) -> str:
    """Return YAML that this loader, and any YAML 1.1 loader, reads back as the same values."""
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


# Text that needs no quotes; the first letters of `true`, `false` and `null` are excluded.
_WORD = re.compile(r"[a-zA-Z/](?<![tTfFnN])[a-zA-Z0-9_./-]*")


def dump_value(value: Any) -> str:
    """Return one value as a line of ASCII that this loader reads back, as in `key=value`."""
    if isinstance(value, str) and _WORD.fullmatch(value):
        return value
    text = json.dumps(value, ensure_ascii=False)
    # JSON is YAML except for surrogate pairs and for the characters that it leaves unescaped.
    return "".join(c if " " <= c <= "~" else _escape(ord(c)) for c in text)


def _escape(code: int) -> str:
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
