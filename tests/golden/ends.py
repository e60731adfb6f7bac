"""How each planted run ended, in the words of every command that says so."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main as analysis
from configs.errors import ConfigError
from configs.terminal import guarded
from launch.__main__ import main as launch
from launch.submit.study_cells import rows_to_run
from launch.why.command import why
from runs.__main__ import main as runs
from runs.folder import RunFolder
from tests.corpus.catalogue import RUNS
from tests.corpus.planting import Run, age, plant, plant_slurm, plant_study
from tests.golden.surroundings import one_line, printed, rows

# The exit status of the ranks: success, an exception, killed, ended by scancel.
STATUSES = (0, 1, 137, 143)
# The ways to submit a study's folder again: whether cells that failed for memory run too.
_AGAIN = {"submit": False, "rerun": True}

# As a cell, this run ends the command for all of its study.
_UNREADABLE = "damaged-manifest"


def texts(folder: Path) -> dict[str, str]:
    """Return what is printed about each planted run, by its name; needs `surroundings`."""
    for run in RUNS:
        plant(run, folder / "logs" / run.name)
    plant_slurm(RUNS, folder / "answers")
    age(folder / "logs")
    known = _launched()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANSWERS", "/nonexistent")
        silent = _launched()
    read = _by_run(printed(analysis, "runs", "logs", "--json")[1])
    again = _taken_again(folder)
    found = {}
    for run in RUNS:
        text, more, state = known[run.name]
        lines = text + more + state
        # Without Slurm the JSON says no more than the text.
        for shown, before in zip(silent[run.name][::2], (text, state), strict=True):
            lines += [f"without Slurm: {line}" for line in shown if shown != before]
        lines += _closed(run, folder)
        lines += [f"submitted again by: {', '.join(again[run.name]) or 'nothing'}"]
        lines += [f"ditbench runs: {one_line(read[run.name])}"] if run.name in read else []
        found[run.name] = "".join(f"{line}\n" for line in lines)
    return found


def _by_run(text: str) -> dict[str, dict[str, Any]]:
    table = [(Path(row.pop("run")).name, row) for row in rows(text)]
    assert len(dict(table)) == len(table)
    return dict(table)


def _launched() -> dict[str, tuple[list[str], list[str], list[str]]]:
    """Return what `ditbench why`, its JSON and `ditbench status` say about each run."""
    states = _by_run(printed(launch, "status", "logs", "--json")[1])
    return {
        run.name: (*_why(f"logs/{run.name}"), [f"ditbench status: {one_line(states[run.name])}"])
        for run in RUNS
    }


def _why(run: str) -> tuple[list[str], list[str]]:
    """Return what `ditbench why` prints, and what its JSON adds to that."""
    code, out, err = printed(_command, run, "text")
    more = []
    for one in rows(printed(_command, run, "json")[1]):
        one["evidence"] = [line for line in one["evidence"] if line not in out] or ""
        added = {name: value for name, value in one.items() if str(value) not in out}
        more += [f"ditbench why --json: {one_line(added)}"] if added else []
    return [f"ditbench why: exit {code}", *(f"  {line}" for line in (out + err).splitlines())], more


def _command(words: list[str]) -> int:
    """Run `ditbench why`."""
    return guarded(lambda: why(words[0], form=words[1]))


def _closed(run: Run, folder: Path) -> Iterator[str]:
    """Yield how the newest attempt is closed, by the exit status of its ranks."""
    if not run.attempts:
        return
    found: dict[str, list[str]] = {}
    for status in STATUSES:
        with tempfile.TemporaryDirectory(dir=folder) as apart:
            copy = RunFolder(Path(apart) / run.name)
            shutil.copytree(folder / "logs" / run.name, copy.path)
            before = len(list(copy.records()))
            attempt = str(copy.attempt(len(run.attempts)))
            code, out, err = printed(runs, "close", attempt, "--status", str(status))
            added = [
                one_line({k: v for k, v in record.items() if k not in ("time", "attempt")})
                for record in list(copy.records())[before:]
            ]
            if added:
                titles = printed(_command, str(copy.path), "text")[1].splitlines()
                title = [line for line in titles if not line.startswith(" ")][-1]
                added.append(f"ditbench why: {title.partition(': ')[2]}")
        said = err.replace(f"{Path(apart).name}/", "") if code == 2 else ""
        end = "; ".join([f"{out or said}".strip() + f", exit {code}", *added])
        found.setdefault(end.replace(f"status {status} ", "status STATUS "), []).append(str(status))
    for end, statuses in found.items():
        yield f"runs close --status {'|'.join(statuses)}: {end}"


def _taken_again(folder: Path) -> dict[str, list[str]]:
    """Return, for each run, by which command it would run again if it were a cell of a study."""
    alone = plant_study([run for run in RUNS if run.name == _UNREADABLE], folder / "study-of-one")
    with pytest.raises(ConfigError):
        rows_to_run(alone, rerun=False)
    cells = [run for run in RUNS if run.name != _UNREADABLE]
    study = plant_study(cells, folder / "study")
    age(study.path)
    found: dict[str, list[str]] = {run.name: [] for run in RUNS}
    found[_UNREADABLE] = ["nothing, nor is any other cell"]
    for command, rerun in _AGAIN.items():
        for row in rows_to_run(study, rerun=rerun):
            found[row.cell].append(command)
    return found
