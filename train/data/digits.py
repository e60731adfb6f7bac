"""scikit-learn's handwritten digits: 1,797 real images of 8 x 8 that come with the package.

python -m train.data.digits FOLDER    write them as PNG files, to try data.source=folder
"""

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from configs.errors import ConfigError
from configs.terminal import guarded
from train.data.source import Source


class Digits(Source):
    """The digits, `[1, 8, 8]` in -1..1."""

    def __init__(self) -> None:
        table = _read_table()
        self._images = (table[:, :-1] / 8 - 1).astype(np.float32).reshape(-1, 1, 8, 8)
        self._labels = table[:, -1].astype(np.int64)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[NDArray[np.float32], int]:
        return self._images[index], int(self._labels[index])


def main(arguments: list[str]) -> int:
    """Write `FOLDER/<digit>/<index>.png`. Raise `ConfigError` if the folder is not empty."""
    parser = argparse.ArgumentParser(
        prog="python -m train.data.digits",
        description="Write scikit-learn's 1,797 digits of 8 x 8 as PNG files, a folder per class.",
    )
    parser.add_argument("folder", type=Path, help="a new or empty folder")
    folder = parser.parse_args(arguments).folder
    try:
        if folder.exists() and any(folder.iterdir()):
            raise ConfigError(f"{folder}: not empty; name a new or empty folder")
        count = write_digits(folder)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written: {error.strerror}") from None
    print(f"{count} images: data.source=folder data.path={folder} data.size=8 data.channels=1")
    return 0


def write_digits(folder: Path) -> int:
    """Write the files and return their number."""
    digits = Digits()
    for index in range(len(digits)):
        image, label = digits[index]
        inner = folder / str(label)
        inner.mkdir(parents=True, exist_ok=True)
        # The 17 grey levels of the data set, spread over 0..255.
        grey = np.rint((image[0] + 1) / 2 * 255).astype(np.uint8)
        Image.fromarray(grey).save(inner / f"{index:04d}.png")
    return len(digits)


def _read_table() -> NDArray[np.float64]:
    """Return `[1797, 65]`: 64 pixels in 0..16, and the digit. Importing scikit-learn takes 1 s."""
    found = find_spec("sklearn")
    assert found is not None
    assert found.submodule_search_locations is not None
    package = Path(found.submodule_search_locations[0])
    return np.loadtxt(package / "datasets" / "data" / "digits.csv.gz", delimiter=",")


if __name__ == "__main__":
    sys.exit(guarded(lambda: main(sys.argv[1:])))
