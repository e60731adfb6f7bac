"""`cells --ablation`: main effects and interactions of a study's factors."""

import argparse
import math
from typing import Any

from analysis.commands import plot_file, writing
from analysis.read.find import read_logs
from analysis.study.ablation import effect_rows, effects, interactions
from analysis.study.cells import group_cells, started_runs
from analysis.table import interval_text, put, put_more, remark
from analysis.verdict import FIELDS

EXAMPLE = "ditbench cells logs/layouts-1120 --ablation --plot effects.svg"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the plot."""
    parser.add_argument(
        "--plot", type=plot_file, metavar="FILE", help="draw the effects: .png or .svg"
    )


def run(args: argparse.Namespace) -> int:
    """Print effects, then interactions; return 1 if no two cells differ in one factor only."""
    study = group_cells(started_runs(read_logs(args.paths)))
    found = effects(study)
    rows, others = effect_rows(found, interactions(found, study))
    is_text = not (args.json or args.csv)
    put(
        [_shown(row) for row in rows] if is_text else rows,
        args,
        json={"effects": rows, "interactions": others},
    )
    if not args.csv:
        put_more(
            [_shown(row) for row in others] if is_text else others,
            args,
            title="how an effect changes with another factor",
        )
    args.rows = rows
    for effect in found:
        for pair in effect.unlike:
            change = 100 * math.expm1(pair.change)
            remark([f"{pair.after.name}: {change:+.0f} % by {effect.factor}, unlike its siblings"])
    remark(study.remarks)
    if args.plot:
        # matplotlib takes half a second to import.
        from analysis.plot import save
        from analysis.study.plots import effects_figure

        with writing(args.plot):
            save(effects_figure(found, study), args.plot)
    return 0 if found else 1


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row for people: the change and its interval in percent, then the word."""
    low, high = ((None if row[end] is None else 100 * (row[end] - 1)) for end in ("low", "high"))
    ends = interval_text(low, high, "+.1f") or None
    changed = {"95 %": ends, "verdict": row["word"]}
    return {
        key: value
        for name, value in row.items()
        if name == "percent" or name not in FIELDS
        for key, value in ({name: value} | (changed if name == "percent" else {})).items()
    }
