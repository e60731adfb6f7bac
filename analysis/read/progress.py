"""A word on stderr if reading takes long."""

from pathlib import Path

from configs.progress import LongWork


class ReadingProgress(LongWork):
    """Says how much of a file is read."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"reading {str(path)!r}")
        self._size = max(path.stat().st_size, 1)

    def at(self, place: int) -> None:
        """Note that the first `place` bytes of the file are read."""
        if self.is_due:
            self.say(f"{min(place / self._size, 1.0):.0%}")
