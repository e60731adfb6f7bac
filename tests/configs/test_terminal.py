"""A command whose reader leaves before the end ends without a traceback."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "words",
    [
        ["runs", "show", "pretrain"],
        ["analysis", "runs", "docs/measurements/a-grid-small.tar.xz"],
    ],
    ids=lambda words: words[0],
)
def test_a_reader_that_leaves_is_no_error(words: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        process.stdout.close()
        errors = process.stderr.read()
    assert process.returncode == 1
    assert "BrokenPipe" not in errors
    assert "Traceback" not in errors
