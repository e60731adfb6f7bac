"""Find the last exception in the output of Python programs, and the line that raised it."""

import re
from collections.abc import Iterable
from pathlib import Path

from configs.run.folder import ROOT

_PREFIX = re.compile(r"^\[[^\]]*\]:\s?")
_FRAME = re.compile(r'\s+File "([^"]+)", line (\d+)')
_RAISED = re.compile(r"(?:(?:\w+\.)+\w+|[A-Z]\w*)(?::(?:\s|$)|$)")
# torchrun reports the end of its ranks by exceptions of its own.
_BY_TORCHRUN = re.compile(r"\S*(?:ChildFailedError|SignalException|RendezvousConnectionError)\b")
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3|^<")
# Jobs of the launcher run from a snapshot.
_SNAPSHOT = re.compile(r"^.*/\.code/[^/]+/")


def last_exception(lines: Iterable[str]) -> str:
    """Return `train/loop.py:1: SyntaxError: invalid syntax` of the last traceback, or ""."""
    found = ""
    frames: list[tuple[str, str]] = []
    for line in lines:
        text = _PREFIX.sub("", line).rstrip()
        if frame := _FRAME.match(text):
            frames.append((frame[1], frame[2]))
        elif frames and _RAISED.match(text):
            if not _BY_TORCHRUN.match(text):
                found = f"{_place(frames)}: {text[:200]}"
            frames = []
    return found


def _place(frames: list[tuple[str, str]]) -> str:
    """Return the innermost line outside of libraries, in a file relative to the code's tree."""
    own = [frame for frame in frames if not _LIBRARY.search(frame[0])]
    file, number = (own or frames)[-1]
    path = Path(_SNAPSHOT.sub("", file))
    for root in (ROOT, Path.cwd()):
        path = path.relative_to(root) if path.is_relative_to(root) else path
    return f"{path}:{number}"
