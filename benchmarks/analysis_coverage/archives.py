"""The shipped archives: pairs of real runs that differ in their seed only, or in nothing."""

import tarfile
import tempfile
import time
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

from benchmarks.analysis_coverage.harness import Result, Tally
from benchmarks.analysis_coverage.verdicts import CLAIMS, REFUSED, ask, judgements
from configs.yaml12 import parse_yaml

ARCHIVES = Path("docs/measurements")
Config = dict[str, Any]
# Keys that say nothing about what a run does.
FREE = ("seed", "question", "name")


def results() -> list[Result]:
    """Ask about each pair, and count those that are called different."""
    with tempfile.TemporaryDirectory(prefix="coverage-") as folder:
        studies = [_unpacked(path, Path(folder)) for path in sorted(ARCHIVES.glob("*.tar.xz"))]
        pairs = [pair for study in studies for pair in _alike(study)]
        seeds = [(a, b) for a, b, differs in pairs if differs]
        repeats = [(a, b) for a, b, differs in pairs if not differs]
        return [
            _asked("pairs of seeds, by loss", "loss", seeds),
            _asked("pairs of identical runs, by speed", "speed", repeats),
        ]


def _unpacked(archive: Path, folder: Path) -> Path:
    target = folder / archive.name.removesuffix(".tar.xz")
    with tarfile.open(archive) as file:
        file.extractall(target, filter="data")
    return target


def _alike(study: Path) -> Iterator[tuple[Path, Path, bool]]:
    """Yield pairs of runs of one config, and whether their seeds differ."""
    found = sorted(study.glob("**/config.yaml"))
    configs = {path.parent: parse_yaml(path.read_text(), source=str(path)) for path in found}
    for (a, one), (b, other) in combinations(configs.items(), 2):
        if _without(one) == _without(other):
            yield a, b, one.get("seed") != other.get("seed")


def _without(config: Config) -> Config:
    return {name: value for name, value in config.items() if name not in FREE}


def _asked(name: str, kind: str, pairs: list[tuple[Path, Path]]) -> Result:
    """Ask about pairs of runs that do the same: whatever calls their recipes different is wrong.

    That the rates of two runs differ can be true of these two; their losses differ by the seed.
    """
    tally, begun = Tally(exact=True), time.process_time()
    for a, b in pairs:
        answer = ask([kind, str(a), str(b)])
        words = [one.word for one in judgements(kind, answer)]
        allowed = {"same"} if kind == "loss" else {"same", "different"}
        tally.tables += 1
        tally.rows += 1
        tally.refused += not words or words[0] == REFUSED
        tally.silent += bool(words) and words[0] not in CLAIMS and words[0] != REFUSED
        tally.false_tables += any(word in CLAIMS and word not in allowed for word in words)
        tally.bugs += answer.is_bug
    tally.seconds = round(time.process_time() - begun, 2)
    return Result(topic="shipped archives", scenario=name, tally=tally)
