"""`runs`: one row per run."""

import argparse

from analysis.table import csv_table, json_text, remark, text_table

DOC = "one row per run: state, step, loss, steady rate, ranks, attempts, where it ran"
EXAMPLE = "python -m analysis runs logs"


def options(_: argparse.ArgumentParser) -> None:
    """No options of its own."""


def act(asked: argparse.Namespace) -> int:
    """Print the table; 1 where a run could not be read."""
    from analysis.read import Unreadable
    from analysis.read.find import folders
    from analysis.read.ours import read_ours
    from analysis.runs import run_row

    rows, unread = [], []
    for folder in folders(asked.paths):
        try:
            rows.append(run_row(read_ours(folder)))
        except Unreadable as error:
            rows.append({"run": folder.name, "state": "unreadable"})
            unread.append(str(error))
    if asked.json:
        print(json_text(rows))
    else:
        print(csv_table(rows) if asked.csv else text_table(rows))
    remark(unread)
    return 1 if unread else 0
