"""Flags are parsed, checked and formatted; a value cannot inject a directive."""

from pathlib import Path

import pytest

from configs.errors import ConfigError
from launch.slurm.client import parse_duration
from launch.slurm.flags import parse_flags, template_flags, to_words
from runs.folder import ROOT


def test_words_are_flags_and_back() -> None:
    words = ["--time=04:00:00", "--requeue", "--comment=a=b; $(c)", "--export="]
    flags = parse_flags(words, source="here")
    assert flags == {"time": "04:00:00", "requeue": True, "comment": "a=b; $(c)", "export": ""}
    assert to_words(flags) == words


@pytest.mark.parametrize("word", ["-p", "gpu", "--", "--Time=1", "-p gpu", "--a b", ""])
def test_an_invalid_flag_is_refused_with_its_source(word: str) -> None:
    with pytest.raises(ConfigError, match=r"^env/sites/x\.sh: .* is not a flag"):
        parse_flags([word], source="env/sites/x.sh")


@pytest.mark.parametrize("value", ["a\n#SBATCH --uid=0", "a\rb", "a\x00b", "a\\b", "a\x1b[31m"])
def test_a_value_that_could_break_its_directive_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="--comment contains characters"):
        parse_flags([f"--comment={value}"], source="here")


def test_the_templates_directives_are_read_up_to_its_first_command(tmp_path: Path) -> None:
    template = tmp_path / "x.sbatch"
    template.write_text("#!/bin/bash\n# About.\n#SBATCH --time=1\n\n#SBATCH --requeue\nset -e\n")
    assert template_flags(template) == {"time": "1", "requeue": True}
    template.write_text("#!/bin/bash\nset -e\n#SBATCH --time=1\n")
    assert template_flags(template) == {}


def test_every_template_can_be_replayed() -> None:
    templates = sorted((ROOT / "jobs").glob("*.sbatch"))
    assert templates
    for template in templates:
        flags = template_flags(template)
        assert {"output", "open-mode", "signal", "time"} <= set(flags)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30", 1800),
        ("30:15", 1815),
        ("1:30:15", 5415),
        ("2-00:00:00", 172800),
        ("1-6", 108000),
        ("1-6:30", 109800),
        ("infinite", None),
        ("UNLIMITED", None),
        ("", None),
    ],
)
def test_all_of_slurms_time_formats_are_parsed(text: str, expected: int | None) -> None:
    assert parse_duration(text) == expected
