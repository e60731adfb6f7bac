"""What commands say about archives, planted runs and programs is as it was frozen.

A change on purpose: `python -m tests.golden --write`, and the reason in the commit.
"""

from pathlib import Path

import pytest

from tests.golden.archives import ARCHIVES
from tests.golden.frozen import (
    GOLDEN,
    archive_file,
    archive_text,
    difference,
    end_texts,
    program_text,
)

WRITE = "; if that is meant: python -m tests.golden --write"


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_commands_on_an_archive_print_what_is_frozen(archive: Path, tmp_path: Path) -> None:
    found = difference(archive_file(archive), archive_text(archive, tmp_path))
    assert not found, found + WRITE


def test_the_end_of_every_planted_run_is_told_as_frozen(tmp_path: Path) -> None:
    texts = end_texts(tmp_path)
    assert {path.name for path in GOLDEN.glob("ends/*")} == {Path(name).name for name in texts}
    found = "".join(difference(name, text) for name, text in texts.items())
    assert not found, found + WRITE


def test_programs_end_as_frozen(tmp_path: Path) -> None:
    found = difference("programs.txt", program_text(tmp_path))
    assert not found, found + WRITE
