"""Finds the runs under the paths that a person named."""

from pathlib import Path

from analysis.read import Unreadable
from analysis.read.log import RunLog
from analysis.read.ours import read_ours
from configs.run import RunFolder, find_runs


def read_logs(paths: list[str]) -> list[RunLog]:
    """The log of every run under `paths`, in that order; a run named twice is read once."""
    return [read_ours(folder) for folder in folders(paths)]


def folders(paths: list[str]) -> list[RunFolder]:
    """The run folders under `paths`; `Unreadable` where a path has none."""
    found: dict[Path, RunFolder] = {}
    for path in paths:
        try:
            here = Path(path)
            if not here.exists():
                raise Unreadable(f"{path}: no such file or folder")
            runs = find_runs(here if here.is_dir() else here.parent)
        except (OSError, ValueError) as error:
            if isinstance(error, Unreadable):
                raise
            raise Unreadable(f"{path}: cannot be read ({error})") from None
        if not runs:
            raise Unreadable(f"{path}: no run in it (a run is a folder with a config.yaml)")
        for run in runs:
            found.setdefault(run.path.resolve(), run)
    return list(found.values())
