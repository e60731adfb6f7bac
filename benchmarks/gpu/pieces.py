"""The pieces of a plan, and how each is run: as a process whose figures are passed on at once."""

import contextlib
import importlib.util
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).resolve().parents[2]
# Time to end the processes of a piece and to write its last line.
MARGIN_S = 5.0
# Characters kept of the output of what failed.
TAIL = 4000
# What a job sets for a GPU: the allocator, and a private folder for compiled kernels.
_ENVIRONMENT = """
set -euo pipefail
ATTEMPT=$0
. jobs/environment.sh
keep_kernels
set_gpu_defaults
exec "$@"
"""
Line = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A module with arguments, the packages that it needs, and the most minutes it may take.

    Without `minutes` it may take what is left of the command, and keeps what it has by then.
    """

    part: str
    title: str
    words: str
    needs: tuple[str, ...]
    minutes: float | None

    @property
    def name(self) -> str:
        """PART/TITLE, as `--only` takes it."""
        return f"{self.part}/{self.title}"

    def is_chosen(self, only: Sequence[str] | None) -> bool:
        """Return whether `--only` names this piece or its part."""
        return only is None or self.name in only or self.part in only


def read_plan(file: Path) -> list[Piece]:
    """Return the pieces of a plan, in its order."""
    tree = tomllib.loads(file.read_text(encoding="utf-8"))
    pieces = []
    for name, (minutes, words) in tree["pieces"].items():
        while "{" in words:
            words = words.format_map(tree["words"])
        part, _, title = name.partition("/")
        needs = " ".join(needs for word, needs in tree["needs"].items() if word in words)
        pieces.append(
            Piece(
                part=part,
                title=title,
                words=words,
                needs=tuple(dict.fromkeys(needs.split())),
                minutes=minutes or None,
            )
        )
    return pieces


def run_pieces(
    pieces: Sequence[Piece], *, ends: float, logs: Path, passed: Sequence[str]
) -> Iterator[Line]:
    """Run the pieces for which time is left before `ends`; yield lines as figures are taken.

    A piece begins if half of its minutes are left. `passed` are tests that need not run again.
    """
    for piece in pieces:
        about = {"part": piece.part, "name": piece.title, "command": f"python -m {piece.words}"}
        left, whole = ends - MARGIN_S - time.time(), 60 * (piece.minutes or math.inf)
        if left < 30 * (piece.minutes or 1):
            continue
        missing = [each for each in piece.needs if not importlib.util.find_spec(each)]
        if missing:
            state = {"state": "skipped", "reason": f"needs {', '.join(missing)}"}
            yield about | {"figure": "", "time": time.time(), "wall_s": 0.0} | state
            continue
        variables = {"LOGS": str(logs), "TESTS_PASSED": json.dumps(passed)}
        for found in run(piece, logs, seconds=min(left, whole), variables=variables):
            # What the end of the command cuts is left for the next one.
            if found["state"] != "timed out" or whole <= left:
                yield about | found


def run(piece: Piece, logs: Path, *, seconds: float, variables: dict[str, str]) -> Iterator[Line]:
    """Run a piece for at most so many seconds; yield its figures, then its end.

    A figure has the name that the piece printed, else the title. The `figure` of the end is empty.
    """
    began, stem = time.time(), logs / f"{piece.part}-{piece.title}"
    (logs / "attempts" / "001" / "ranks").mkdir(parents=True, exist_ok=True)

    def dated(line: Line) -> Line:
        return line | {"time": began, "wall_s": round(time.time() - began, 1)}

    said, failed, running = stem.with_suffix(".out"), False, True
    with said.open("w") as out, stem.with_suffix(".err").open("w") as err, said.open() as lines:
        process = subprocess.Popen(
            ["bash", "-c", _ENVIRONMENT, logs / "attempts" / "001",
             sys.executable, "-m", *shlex.split(piece.words)],
            cwd=ROOT, stdout=out, stderr=err, env=os.environ | variables, start_new_session=True,
        )  # fmt: skip
        try:
            while running:
                running = process.poll() is None and time.time() < began + seconds
                for found in figures(lines, piece.title):
                    failed |= not found["figure"]
                    yield dated(found)
                time.sleep(0.1 * running)
            status = process.poll()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if status is None:
        yield dated({"figure": "", "state": "timed out", "reason": f"killed after {seconds:.0f} s"})
    elif status:
        text = (said.read_text() + stem.with_suffix(".err").read_text()).strip()
        reason = text.rpartition("\n")[2] or f"status {status}"
        yield dated({"figure": "", "state": "failed", "reason": reason, "tail": text[-TAIL:]})
    elif not failed:
        yield dated({"figure": "", "state": "done"})


def figures(lines: TextIO, title: str) -> Iterator[Line]:
    """Yield the JSON objects of whole lines: figures, and why one is missing."""
    while (line := lines.readline()).endswith("\n"):
        found: Any = None
        with contextlib.suppress(ValueError):
            found = json.loads(line)
        if isinstance(found, dict):
            name = found.pop("name", "")
            bad = next((word for word in ("failed", "skipped") if word in found), None)
            if bad:
                tail = {"tail": found["tail"]} if "tail" in found else {}
                yield {"figure": name, "state": bad, "reason": found[bad]} | tail
            else:
                yield {"figure": name or title, "state": "measured", "result": found}
    lines.seek(lines.tell() - len(line.encode()))
