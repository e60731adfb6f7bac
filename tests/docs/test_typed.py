"""Every command of README and docs is executed here, or by a test that exists."""

import re
from pathlib import Path

import pytest

from tests.docs.command_classes import ELSEWHERE, EXECUTED, MINUTES, ON_A_CLUSTER, matching
from tests.docs.page_commands import OTHER_BLOCKS, PAGES, blocks, commands

CLASSES = (EXECUTED, MINUTES, ON_A_CLUSTER, ELSEWHERE)
PATTERNS = [pattern for one in CLASSES for pattern in one]
NAMED = ON_A_CLUSTER | ELSEWHERE


@pytest.mark.parametrize("command", commands())
def test_every_command_is_of_one_class(command: str) -> None:
    found = [pattern for one in CLASSES for pattern in matching(command, one)]
    assert len(found) == 1, f"{command}: put it into tests/docs/command_classes.py"


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_class_has_a_command(pattern: str) -> None:
    assert any(re.fullmatch(pattern, command) for command in commands())


def test_every_file_of_tests_that_is_named_is_there() -> None:
    assert all(Path("tests", file).exists() for file in NAMED.values())


def test_every_block_that_is_said_to_hold_no_commands_is_there() -> None:
    firsts = [block.lines[0] for page in PAGES for block in blocks(page)]
    for start in OTHER_BLOCKS:
        assert sum(first.startswith(start) for first in firsts) == 1, start
