"""scikit-learn's handwritten digits: 1,797 real images of 8 x 8 that come with the package."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from train.data.source import Source


class Digits(Source):
    """The digits as `[1, 8, 8]` in -1..1."""

    def __init__(self) -> None:
        table = _table()
        self._images = (table[:, :-1] / 8 - 1).astype(np.float32).reshape(-1, 1, 8, 8)
        self._labels = table[:, -1].astype(np.int64)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[NDArray[np.float32], int]:
        return self._images[index], int(self._labels[index])


def _table() -> NDArray[np.float64]:
    """`[1797, 65]`, 64 pixels in 0..16 and the digit.

    The package is found and not imported: that takes each rank more than a second.
    """
    found = find_spec("sklearn")
    assert found is not None
    assert found.submodule_search_locations is not None
    package = Path(found.submodule_search_locations[0])
    return np.loadtxt(package / "datasets" / "data" / "digits.csv.gz", delimiter=",")
