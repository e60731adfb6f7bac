"""Files that README and docs name exist, and their commands have the options they use."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from configs.load import flatten, read_tree
from configs.yaml12 import parse_yaml
from tests.docs.command_classes import EXECUTED, matching
from tests.docs.page_commands import commands

README = Path("README.md").read_text(encoding="utf-8")
PAGES = {
    path: path.read_text() for path in [Path("README.md"), *sorted(Path("docs").rglob("*.md"))]
}
FOLDERS = ("configs", "runs", "launch", "train", "finetune", "analysis", "jobs", "env", "docs",
           "tests", "benchmarks")  # fmt: skip
# Commands that tests/docs/test_executed.py does not run as they are.
COMMANDS = [
    line
    for line in commands()
    if re.match(r"python -m (?:configs|runs|launch|train|finetune|analysis)\b", line)
    and not matching(line, EXECUTED)
]


def test_every_folder_in_the_table_exists() -> None:
    rows = [line for line in README.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`([a-z]+/)`", row.split("|")[1])]
    assert len(named) >= 9
    assert all(Path(name).is_dir() for name in named), named


def test_every_tracked_folder_at_the_top_is_in_the_table() -> None:
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True)
    tops = {line.partition("/")[0] for line in listed.stdout.splitlines() if "/" in line}
    hidden = {name for name in tops if name.startswith(".")}
    assert all(f"`{name}/`" in README for name in tops - hidden)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_file_that_is_named_exists(page: Path) -> None:
    named = re.findall(
        rf"(?<![\w./])(?:{'|'.join(FOLDERS)})/[\w./-]+",
        PAGES[page],
    )
    # Words in capitals are placeholders, and what a command of the page writes need not exist.
    made = re.findall(r"--out (\S+)", PAGES[page])
    # Trainers of others have folders named runs/ too.
    foreign = ("runs/detect/",)
    named = [name for name in named if not name.startswith(foreign)]
    real = [name.rstrip(".") for name in named if not re.search(r"[A-Z]{3}", name)]
    assert [name for name in real if name not in made and not Path(name).exists()] == []


def test_the_shortened_config_says_what_the_file_says() -> None:
    shown = re.search(r"```yaml\n# (\S+), shortened\n(.*?)```", README, re.DOTALL)
    assert shown is not None
    file = flatten(read_tree(Path(shown[1])))
    shortened = flatten(parse_yaml(shown[2], source="README"))
    assert shortened.items() <= file.items()


@cache
def help_of(*words: str) -> str:
    """Return the help of a command."""
    done = subprocess.run(
        [sys.executable, "-m", *words, "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_is_understood(line: str) -> None:
    """The help of the command names every option that the line uses; nothing runs."""
    words = re.split(r"#| -- ", line)[0].split()[2:]
    module, rest = words[0], words[1:]
    named = bool(rest) and re.fullmatch(r"[a-z|]+", rest[0])
    known = "".join(
        help_of(module, *action.split()) for action in (rest[0] if named else "").split("|")
    )
    for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", " ".join(words)):
        assert option in known, option


@pytest.mark.parametrize("target", sorted(set(re.findall(r"[`\n]make ([a-z-]+)", README))))
def test_every_make_target_exists(target: str) -> None:
    assert re.search(rf"^{target}:", Path("Makefile").read_text(), flags=re.MULTILINE)
