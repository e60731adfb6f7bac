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
    paths = [Path(as_named(str(path))).parts for _, path in runs]
    names = [name for name, _ in runs]
    for depth in range(2, max(map(len, paths), default=0) + 1):
        counts = Counter(names)
        names = [
            "/".join([*parts[-depth:-1], own]).replace("//", "/") if counts[name] > 1 else name
            for parts, name, (own, _) in zip(paths, names, runs, strict=True)
        ]
    repeats, again = Counter(names), Counter[str]()
    for place, name in enumerate(names):
        again[name] += 1
        names[place] = f"{name} ({again[name]})" if repeats[name] > 1 else name
    return names


def _without_id(log: RunLog) -> str:
    is_own = log.format == "ditbench" and study_of(log.path) is None
    return _ID.sub("", log.name) if is_own else log.name
