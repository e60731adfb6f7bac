"""Fixtures that ask commands about planted runs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.__main__ import main
from tests.analysis.planted.runs import RNG, Asked, Verdicts


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """Draw the same random numbers in a test, whatever ran before it."""
    RNG.bit_generator.state = np.random.default_rng(1).bit_generator.state


@pytest.fixture
def asked(capsys: pytest.CaptureFixture[str]) -> Asked:
    """Gives what a command prints as JSON."""

    def ask(*argv: str | Path) -> Any:
        assert main([*map(str, argv), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return ask


@pytest.fixture
def verdicts(asked: Asked) -> Verdicts:
    """Gives the verdicts of `compare` on the second arm by quantity."""

    def compare(*folders: Path) -> dict[str, Any]:
        rows = asked("compare", *folders)["comparisons"]
        return {row["quantity"]: row for row in rows}

    return compare
