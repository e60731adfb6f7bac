"""Images drawn so far: a file per piece, each whole or absent, joined into one .npz at the end."""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs.disk import replace_file, sync_folder
from configs.errors import ConfigError
from train.evaluate.npz import Pixels, write_npz

Note = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class NpzShards:
    """The pieces of `num` images, `size` in each but the last, on their way to the file `out`.

    Beside `out` stand the folder of pieces, until they are joined, and then a note of what was
    drawn: `images.npz`, `images.npz.pieces/`, `images.json`.
    """

    out: Path
    num: int
    size: int

    @property
    def folder(self) -> Path:
        """Where the pieces are."""
        return self.out.with_name(f"{self.out.name}.pieces")

    @property
    def note_file(self) -> Path:
        """What was drawn, beside the finished file."""
        return note_of(self.out)

    @property
    def count(self) -> int:
        """How many pieces there are in all."""
        return -(-self.num // self.size)

    def numbers(self, piece: int) -> list[int]:
        """The numbers of a piece's images."""
        return list(range(piece * self.size, min(self.num, (piece + 1) * self.size)))

    def begun(self) -> Note | None:
        """What an earlier attempt noted; None where nothing was begun.

        `ConfigError` where the file is there, but nothing says what is in it.
        """
        for file in (self._begun_note, self.note_file):
            if file.is_file():
                return dict(json.loads(file.read_text(encoding="utf-8")))
        if self.out.exists():
            raise ConfigError(f"out {self.out}: is there already; name a new file")
        return None

    def begin(self, note: Note) -> None:
        """Make the folder of pieces and note what they are."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for torn in self.folder.glob(".*"):
            torn.unlink()
        replace_file(self._begun_note, json.dumps(note, indent=1) + "\n")

    def is_joined(self) -> bool:
        """Whether the file is whole, so that the pieces are wanted no more."""
        return self.out.exists() and self.note_file.exists() and not self._begun_note.exists()

    def missing(self) -> list[int]:
        """The pieces that are not there yet."""
        there = {file.name for file in self.folder.iterdir()}
        return [piece for piece in range(self.count) if self._file(piece).name not in there]

    def keep(self, piece: int, images: Pixels) -> None:
        """Write a piece `[n, H, W, 3]`, forced to disk before it has its name."""
        file = self._file(piece)
        beside = file.with_name(f".{file.name}.{os.getpid()}")
        with beside.open("wb") as content:
            np.save(content, images, allow_pickle=False)
            content.flush()
            os.fsync(content.fileno())
        beside.replace(file)
        sync_folder(self.folder)

    def join(self, labels: NDArray[np.int64]) -> None:
        """Write the file that all pieces make, then its note, and remove the pieces."""
        shape = (self.num, *self._read(0).shape[1:])
        write_npz(self.out, self._all(), shape=shape, labels=labels)
        replace_file(self.note_file, self._begun_note.read_text(encoding="utf-8"))
        self._begun_note.unlink()
        self.discard()

    def discard(self) -> None:
        """Remove what is left of the pieces of a finished file."""
        if self.folder.exists():
            shutil.rmtree(self.folder)

    @property
    def _begun_note(self) -> Path:
        return self.folder / "note.json"

    def _all(self) -> Iterator[Pixels]:
        return (self._read(piece) for piece in range(self.count))

    def _read(self, piece: int) -> Pixels:
        images: Pixels = np.load(self._file(piece), allow_pickle=False)
        return images

    def _file(self, piece: int) -> Path:
        return self.folder / f"{piece:06d}.npy"


def note_of(out: Path) -> Path:
    """The file that says what is in a finished `.npz`."""
    return out.with_suffix(".json")
