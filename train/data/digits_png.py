"""`python -m train digits FOLDER`: the digits as PNG files, to try `data.source=folder` on."""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

from configs.errors import ConfigError
from train.data.digits import Digits


def main(arguments: list[str]) -> int:
    """Write `FOLDER/<digit>/<number>.png`; `ConfigError` where the folder is not empty."""
    parser = argparse.ArgumentParser(
        prog="python -m train digits",
        description="Write scikit-learn's 1,797 digits of 8 x 8 as PNG files, a folder per class.",
    )
    parser.add_argument("folder", type=Path, help="a new or empty folder")
    folder = parser.parse_args(arguments).folder
    try:
        if folder.exists() and any(folder.iterdir()):
            raise ConfigError(f"{folder}: holds something already; name a new or empty folder")
        count = write_digits(folder)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written: {error.strerror}") from None
    print(f"{count} images: data.source=folder data.path={folder} data.size=8 data.channels=1")
    return 0


def write_digits(folder: Path) -> int:
    """Write the files, in the order of the data set; how many there are."""
    digits = Digits()
    for number in range(len(digits)):
        image, label = digits[number]
        place = folder / str(label)
        place.mkdir(parents=True, exist_ok=True)
        # The 17 grey levels of the data set, spread over those of a PNG.
        grey = np.rint((image[0] + 1) / 2 * 255).astype(np.uint8)
        Image.fromarray(grey).save(place / f"{number:04d}.png")
    return len(digits)
