"""The sub-commands: each module has an `EXAMPLE`, `run`, and `options` if it has flags."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from analysis.measure.loss import MARGIN
from configs.errors import Unreadable


def plot_file(text: str) -> Path:
    """Return the path of a plot; for `type` of an option."""
    if Path(text).suffix not in (".png", ".svg", ".pdf"):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a name in .png, .svg or .pdf")
    return Path(text)


def share(text: str) -> float:
    """Return a share between 0 and 1; for `type` of an option."""
    with suppress(ValueError):
        if 0 < float(text) < 1:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r}: expected a share between 0 and 1, such as 0.01")


def add_margin(parser: argparse.ArgumentParser, default: float = MARGIN) -> None:
    """Add the margin within which two arms are the same."""
    text = f"what counts as the same loss, as a share of the first (default: {default})"
    parser.add_argument("--margin", type=share, default=default, help=text)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name the file that cannot be written."""
    try:
        yield
    except OSError as error:
        raise Unreadable(f"{path}: cannot be written: {error.strerror or error}") from None
