"""`runs`: one row per run."""

import argparse
from typing import TYPE_CHECKING

from analysis.table import put, remark

if TYPE_CHECKING:
    from analysis.read.other_logs import ReadLogs

DOC = "one row per run: state, step, loss, steady rate, ranks, attempts, where it ran"
EXAMPLE = "python -m analysis runs logs"


def options(sub: argparse.ArgumentParser) -> None:
    """Whether to show the ledger of what was read."""
    sub.add_argument(
        "--ledger",
        action="store_true",
        help="instead, one row per foreign text file: how many of its lines were metrics, events, "
        "known noise and unknown",
    )
    sub.add_argument(
        "--detect",
        action="store_true",
        help="instead, one row per stall, spike, divergence, NaN, rate drop, clock jump and "
        "straggler; exit 1 where there is any",
    )


def act(asked: argparse.Namespace) -> int:
    """Print the table; 1 where a run could not be read."""
    from analysis.measure.overview import overview
    from analysis.read.find import read_all

    if asked.ledger:
        return _ledger(asked)
    if asked.detect:
        return _detect(read_all(asked.paths), asked)
    entries = overview(asked.paths)
    put([entry["row"] for entry in entries], asked)
    remark(line for entry in entries for line in entry["remarks"])
    return 1 if any(entry["row"].get("state") == "unreadable" for entry in entries) else 0


def _detect(found: "ReadLogs", asked: argparse.Namespace) -> int:
    from analysis.detect.detectors import detect

    rows = [
        {"run": log.name, "finding": one.kind, "step": one.step, "line": one.line}
        | {"detail": one.detail}
        for log in found.logs
        for one in detect(log)
    ]
    put(rows, asked)
    remark(why for _, why in found.unread)
    return 1 if rows or found.unread else 0


def _ledger(asked: argparse.Namespace) -> int:
    from analysis.measure.overview import ledger_row
    from analysis.read.find import text_files
    from analysis.read.other_logs import named
    from analysis.read.text.ledger import read_ledger

    rows = []
    for path in text_files(asked.paths):
        with named(path):
            rows.append(ledger_row(read_ledger(path)))
    put(rows, asked)
    return 0
