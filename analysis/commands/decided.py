"""`cells --decided`: what a study has settled so far, by intervals that hold at any time."""

import argparse
from pathlib import Path

from analysis.read.find import read_logs
from analysis.study.decision import decide, end_settled
from analysis.table import put, remark
from configs.errors import Unreadable
from runs.study_folder import StudyFolder, is_study_folder

EXAMPLE = "ditbench cells logs/layouts-1120 --decided"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the switch that ends what is settled."""
    parser.add_argument(
        "--skip",
        action="store_true",
        help="end the waiting and running repeats that can change no verdict",
    )


def run(args: argparse.Namespace) -> int:
    """Print a row per cell and quantity; return 1 while one of them is undecided."""
    [path, *others] = map(Path, args.paths)
    if not path.exists():
        raise Unreadable(f"{path}: no such file or folder")
    if others or not is_study_folder(path):
        raise Unreadable(f"{args.paths[-1]}: --decided takes one folder of a study")
    study = StudyFolder(path)
    found = decide(study, read_logs([str(path)]))
    put(found.found, args)
    if args.skip:
        remark(end_settled(study, found))
    return 0 if len(found.settled) == len(found.cells) else 1
