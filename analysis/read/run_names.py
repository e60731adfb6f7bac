"""Name runs by the part of their folder's name, or of their config, in which they differ."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.read.machine import gpu, ranks
from analysis.read.options import options_of_command
from analysis.read.run_log import RunLog
from configs.schema import KINDS, keys
from runs.study_folder import study_of

# The id at the end of a run's folder: of a batch job, or a time with a random part.
_ID = re.compile(r"-(\d{4}-\d{6}-[0-9a-f]{4}|\d+)$")
_MOST_KEYS = 2


def named(logs: Sequence[RunLog]) -> list[RunLog]:
    """Return the logs under unique names; a log with a short one has its folder as a remark."""
    names = named_apart([(log.name, log.path) for log in logs])
    short = _short(logs) if options_of_command().short_names and len(logs) > 1 else names
    if len(set(short)) < len(short):
        short = names
    return [
        replace(log, name=name)
        if name == long or log.name == name
        else replace(log, name=name, remarks=(f"{name}: {log.path}", *log.remarks))
        for log, name, long in zip(logs, short, names, strict=True)
    ]


def named_apart(runs: Sequence[tuple[str, Path]]) -> list[str]:
    """Return unique names: with the name of the folder in front, then with a number."""
    counts = Counter(name for name, _ in runs)
    longer = [f"{path.parent.name}/{name}" if counts[name] > 1 else name for name, path in runs]
    repeats, again = Counter(longer), Counter[str]()
    names = []
    for name in longer:
        again[name] += 1
        names.append(f"{name} ({again[name]})" if repeats[name] > 1 else name)
    return names


def _short(logs: Sequence[RunLog]) -> list[str]:
    """Return names without ids; runs whose names differ only in it, by what else differs."""
    stems = [_stem(log) for log in logs]
    groups: dict[str, list[int]] = defaultdict(list)
    for place, stem in enumerate(stems):
        groups[stem].append(place)
    for stem, places in groups.items():
        if len(places) > 1:
            labels = _labels([logs[place] for place in places])
            in_front = f"{stem} " if len(groups) > 1 else ""
            for place, label in zip(places, labels, strict=True):
                stems[place] = f"{in_front}{label}" if label else logs[place].name
    return stems


def _stem(log: RunLog) -> str:
    is_own = log.format == "ditbench" and study_of(log.path) is None
    return _ID.sub("", log.name) if is_own else log.name


def _labels(logs: Sequence[RunLog]) -> list[str]:
    """Return `lr=0.001` or `ranks=2` per run; "" if too much differs, or nothing."""
    facts = [_facts(log) for log in logs]
    names = dict.fromkeys(name for one in facts for name in one)
    differing = [name for name in names if len({str(one.get(name)) for one in facts}) > 1]
    if not 1 <= len(differing) <= _MOST_KEYS:
        return [""] * len(logs)
    leaf = {name: name.rpartition(".")[2] for name in differing}
    labels = [" ".join(f"{leaf[n]}={one.get(n)}" for n in differing) for one in facts]
    return labels if len(set(labels)) == len(labels) else [""] * len(logs)


def _facts(log: RunLog) -> dict[str, Any]:
    """Return the keys that affect loss or clock, the ranks and the GPU."""
    config = log.config or {}
    kind = str(config.get("kind"))
    spec = keys(kind) if kind in KINDS else {}
    affecting = {
        name: config.get(name)
        for name, info in spec.items()
        if {"loss", "clock"} & info.affects and "resources" not in info.affects
    }
    return affecting | {"ranks": ranks(log.facts), "gpu": gpu(log.facts)}
