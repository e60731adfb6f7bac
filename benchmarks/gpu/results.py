"""The lines of `results.jsonl`: which of them count, and which pieces they leave to be measured."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.gpu.pieces import Line, Piece


def read_results(file: Path) -> list[Line]:
    """Return the lines of a file without one that was cut; none if there is no file."""
    if not file.is_file():
        return []
    return [json.loads(text) for text in file.read_text(encoding="utf-8").split("\n")[:-1]]


def newest(lines: Iterable[Line]) -> list[Line]:
    """Return the newest line of each figure, and of each piece as a whole (`figure` is empty).

    A line that was skipped, for want of a package, replaces none.
    """
    last: dict[tuple[str, str, str], Line] = {}
    for line in lines:
        key = (line["part"], line["name"], line["figure"])
        if key not in last or line["state"] != "skipped":
            last[key] = line
    return list(last.values())


def unfinished(pieces: Sequence[Piece], lines: Sequence[Line]) -> list[Piece]:
    """Return the pieces that are not done, in their order; those that failed come last."""
    whole = {(line["part"], line["name"]): line["state"] for line in newest(lines)
             if not line["figure"]}  # fmt: skip
    states = {piece: whole.get((piece.part, piece.title)) for piece in pieces}
    left = [piece for piece in pieces if states[piece] != "done"]
    return sorted(left, key=lambda piece: states[piece] in ("failed", "timed out"))


def passed_tests(lines: Sequence[Line]) -> list[str]:
    """Return the names of the tests that passed."""
    tests = [line for line in newest(lines) if line["part"] == "tests" and line["figure"]]
    return [line["figure"] for line in tests if line["state"] == "measured"]
