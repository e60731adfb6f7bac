"""A cluster that accepts every request, and configs to check on it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from launch.submit.request import run_request
from launch.submit.script import RunRequest
from tests.launch.conftest import DIGITS

Command = Callable[[str, str], Path]

SBATCH = "[[ $* == --test-only ]] && exit 0; exit 1"
SINFO = "echo 'gpu*|2-00:00:00'"


@pytest.fixture
def slurm(command: Command) -> None:
    """A cluster with one partition that accepts every request."""
    command("sbatch", SBATCH)
    command("sinfo", SINFO)


def subject(*overrides: str, source: Path = DIGITS) -> RunRequest:
    return run_request(source, list(overrides), site_name=None, extra={})
