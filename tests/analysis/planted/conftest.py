"""The same random numbers for each test, and the verdicts of `compare`."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.analysis.conftest import Asked
from tests.analysis.planted.runs import RNG, Verdicts


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """Draw the same random numbers in a test, whatever ran before it."""
    RNG.bit_generator.state = np.random.default_rng(1).bit_generator.state


@pytest.fixture
def verdicts(asked: Asked) -> Verdicts:
    """Gives the verdicts of `compare` on the second arm by quantity."""

    def compare(*folders: Path) -> dict[str, Any]:
        rows = asked("compare", *folders)["comparisons"]
        return {row["quantity"]: row for row in rows}

    return compare
