"""Name runs by the part of their folder's name in which they differ."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from analysis.read.options import options_of_command
from analysis.read.run_log import RunLog
from analysis.read.tar_archive import as_named
from runs.study_folder import study_of

# The id at the end of a run's folder: of a batch job, or a time with a random part.
_ID = re.compile(r"-(\d{4}-\d{6}-[0-9a-f]{4}|\d+)$")


def named(logs: Sequence[RunLog]) -> list[RunLog]:
    """Return the logs under unique names; a log with a short one has its folder as a remark."""
    names = named_apart([(log.name, log.path) for log in logs])
    short = [_without_id(log) for log in logs]
    if not options_of_command().short_names or len(logs) == 1 or len(set(short)) < len(short):
        short = names
    return [
        replace(log, name=name)
        if name == long or log.name == name
        else replace(log, name=name, remarks=(f"{name}: {log.path}", *log.remarks))
        for log, name, long in zip(logs, short, names, strict=True)
    ]


def named_apart(runs: Sequence[tuple[str, Path]]) -> list[str]:
    """Return unique names: with as much of the path in front as differs, then with a number."""
    counts = Counter(name for name, _ in runs)
    paths = [Path(as_named(str(path))) for _, path in runs]
    longer = [
        _longer(name, path, [other for other, (same, _) in zip(paths, runs, strict=True)
                             if same == name and other != path])
        if counts[name] > 1 else name
        for path, (name, _) in zip(paths, runs, strict=True)
    ]  # fmt: skip
    repeats, again = Counter(longer), Counter[str]()
    names = []
    for name in longer:
        again[name] += 1
        names.append(f"{name} ({again[name]})" if repeats[name] > 1 else name)
    return names


def _longer(name: str, path: Path, others: Sequence[Path]) -> str:
    """Return a name with the folders in front by which its path differs from `others`."""
    parts = path.parts[:-1]
    depth = 1
    while depth < len(parts) and any(
        one.parts[-1 - depth : -1] == parts[-depth:] for one in others
    ):
        depth += 1
    return "/".join([*parts[-depth:], name]).replace("//", "/")


def _without_id(log: RunLog) -> str:
    is_own = log.format == "ditbench" and study_of(log.path) is None
    return _ID.sub("", log.name) if is_own else log.name
