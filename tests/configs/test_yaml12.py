"""YAML is read with the scalars of YAML 1.2."""

import math

import pytest
import yaml

from configs.errors import ConfigError
from configs.yaml12 import dump_value, dump_yaml, parse_yaml
from runs.folder import ROOT


def read(text: str) -> object:
    return parse_yaml(f"key: {text}", source="here.yaml")["key"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("12:30:00", "12:30:00"),
        ("no", "no"),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("yes", "yes"),
        ("on", "on"),
        ("2026-01-01", "2026-01-01"),
        ("true", True),
        ("~", None),
        ("", None),
        ("null", None),
        (".5", 0.5),
        ("-.inf", -math.inf),
        ("[1, b]", [1, "b"]),
        ("'1e-4'", "1e-4"),
    ],
)
def test_a_plain_scalar_is_what_yaml_1_2_says(text: str, value: object) -> None:
    found = read(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "value",
    [1e-4, 1e22, 0.1, 3, True, None, "1e-4", "12:30:00", "no", "010", "0o17", "yes", "", "~", "é"],
)
def test_a_written_value_is_read_back(value: object) -> None:
    found = parse_yaml(dump_yaml({"key": value}), source="x")["key"]
    assert found == value
    assert type(found) is type(value)


def test_a_float_is_written_so_that_yaml_1_1_reads_it_too() -> None:
    assert dump_yaml({"lr": 1e-4}) == "lr: 0.0001\n"
    assert dump_yaml({"eps": 1e-8}) == "eps: 1.0e-08\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2", "here.yaml: line 2: a is given twice"),
        ("1: 2", "here.yaml: line 1: a key must be text"),
        ("a: [1", "here.yaml, line 1: not valid YAML"),
        ("a: !!python/object/apply:os.system [ls]", "here.yaml, line 1: not valid YAML"),
    ],
)
def test_invalid_yaml_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, source="here.yaml")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "value",
    [1, -0.5, 1e-05, 1e300, True, None, "", "null", "1", "a\nb", "\U00010000", "\x7f\x85\u2028",
     "\\ud83d\\ude00", '"', [1, "a, b"], "$(x)", "#", "é", "a40", "/data/x-1", "true", "Null"],
)  # fmt: skip
def test_a_value_on_the_command_line_is_read_back_as_it_was(value: object) -> None:
    text = dump_value(value)
    assert text.isascii()
    assert text.isprintable()
    found = parse_yaml(text, source="x")
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: " + "[" * 100_000, "nested more than"),
        ("a: " + "{a: " * 1000, "nested more than"),
        ("a: " + "9" * 5000, "a number of 5000 digits"),
        ('a: "x\\0y"', "line 1: holds a character"),
        ('a: "\\ud800"', "line 1: holds a character"),
        ("a: x\0y", "not valid YAML"),
        ("a: &a [*a]", "too many aliases"),
        ("a: &a [1]\nb: &b [*a, *a]", "line 2: too many aliases"),
    ],
)
def test_hostile_text_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"my.yaml.*{message}") as caught:
        parse_yaml(text, source="my.yaml")
    assert "\n" not in str(caught.value)


def read_or_refused(text: str) -> object:
    try:
        return parse_yaml(text, source="s")
    except ConfigError as error:
        return str(error)


@pytest.mark.parametrize(
    "text",
    [
        *(file.read_text() for file in sorted((ROOT / "configs").rglob("*.yaml"))),
        "a: !", "a: >#b\n  c", "a: |+#\n  c", "a: b\tc", "a: @b", "\ufeffa: 1\n\ufeffb: 2", "a: [1",
        "a: &x [1]\nb: *x", "1: 2", "a:\n  b: 1\n  b: 2", "a: \"\\ud800\"",
    ],
)  # fmt: skip
def test_the_fast_parser_reads_and_refuses_as_the_strict_one(text, monkeypatch) -> None:
    found = read_or_refused(text)
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    assert found == read_or_refused(text)


def test_libyaml_parses_what_ditbench_writes(monkeypatch) -> None:
    monkeypatch.setattr(yaml.SafeLoader, "get_event", None)
    assert parse_yaml(dump_yaml({"a": {"b": [1, "x"]}}), source="s") == {"a": {"b": [1, "x"]}}


def test_a_value_may_be_given_once_and_named_again() -> None:
    assert parse_yaml("a: &x [1, 2]\nb: *x", source="s") == {"a": [1, 2], "b": [1, 2]}
