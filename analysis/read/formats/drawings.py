"""ai-toolkit's samples as sets: those of one step, when each was saved, and their sizes."""

from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from analysis.read.formats.samples import SAMPLE
from analysis.read.other_logs import walk


@dataclass(frozen=True, kw_only=True)
class SampleSet:
    """The samples of one step, in the order of saving; times in seconds since 1970."""

    step: int
    times: tuple[float, ...]
    sizes: frozenset[tuple[int, int]]

    @property
    def image_s(self) -> float | None:
        """Seconds per image; nobody saw when the first one was begun."""
        if len(self.times) < 2:
            return None
        return (self.times[-1] - self.times[0]) / (len(self.times) - 1)

    @property
    def began(self) -> float:
        """When it began, had its first image taken as long as the others."""
        return self.times[0] - (self.image_s or 0.0)


def drawings(folder: Path) -> list[SampleSet]:
    """The samples under a folder by step, in the order of time; one set ends where the step does.

    A prompt that comes again begins a new set too: of one run it would be another step's.
    """
    found = []
    for path in walk(folder):
        match = SAMPLE.fullmatch(path.name)
        if match and ".thumbs" not in path.parts:
            found.append((int(match[1]) / 1e3, int(match[2]), int(match[3]), path))
    sets: list[list[tuple[float, int, int, Path]]] = []
    for one in sorted(found):
        if not sets or sets[-1][-1][1] != one[1] or one[2] in {two[2] for two in sets[-1]}:
            sets.append([])
        sets[-1].append(one)
    return [
        SampleSet(
            step=members[0][1],
            times=tuple(time for time, _, _, _ in members),
            sizes=frozenset(size for *_, path in members if (size := _size(path))),
        )
        for members in sets
    ]


def _size(path: Path) -> tuple[int, int] | None:
    try:
        with Image.open(path) as image:
            return image.size
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
