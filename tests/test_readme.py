"""What the README says is there is there, and what it tells to type is understood."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path("README.md").read_text(encoding="utf-8")


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


@pytest.mark.parametrize("path", sorted(set(re.findall(r"(?:configs|jobs|env)/[\w./-]+", README))))
def test_every_file_that_is_named_exists(path: str) -> None:
    assert Path(path.rstrip(".")).exists()


@pytest.mark.parametrize("line", re.findall(r"^python -m \w+.*$", README, flags=re.MULTILINE))
def test_every_command_is_understood(line: str) -> None:
    """Its options are known: with --help behind them, the parser answers and nothing runs."""
    words = line.partition("#")[0].split()[2:]
    module, rest = words[0], words[1:]
    action = [rest[0]] if rest and re.fullmatch(r"[a-z]+", rest[0]) else []
    done = subprocess.run(
        [sys.executable, "-m", module, *action, "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for option in re.findall(r"--[a-z-]+", line):
        assert option in done.stdout, option


@pytest.mark.parametrize("target", sorted(set(re.findall(r"[`\n]make ([a-z-]+)", README))))
def test_every_make_target_exists(target: str) -> None:
    assert re.search(rf"^{target}:", Path("Makefile").read_text(), flags=re.MULTILINE)
