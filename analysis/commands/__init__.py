"""The sub-commands: each module has an `EXAMPLE`, `run`, and `options` if it has flags."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from configs.errors import Unreadable


def plot_file(text: str, kinds: tuple[str, str] = (".png", ".svg")) -> Path:
    """Return the path of a plot; for `type` of an option."""
    if Path(text).suffix not in kinds:
        raise argparse.ArgumentTypeError(f"{text!r} ends neither in {' nor in '.join(kinds)}")
    return Path(text)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name the file that cannot be written."""
    try:
        yield
    except OSError as error:
        raise Unreadable(f"{path}: cannot be written: {error.strerror or error}") from None
