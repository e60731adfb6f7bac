"""`cells --ablation`: main effects and interactions of a study's factors."""

import argparse

from analysis.commands import plot_file, writing
from analysis.read.find import read_logs
from analysis.study.ablation import effect_rows, effects, interactions
from analysis.study.cells import group_cells, started_runs
from analysis.table import put, put_more, remark

EXAMPLE = "ditbench cells logs/layouts-1120 --ablation --plot effects.svg"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the plot."""
    parser.add_argument(
        "--plot", type=plot_file, metavar="FILE", help="draw the effects: .png, .svg or .pdf"
    )


def run(args: argparse.Namespace) -> int:
    """Print effects, then interactions; return 1 if no two cells differ in one factor only."""
    study = group_cells(started_runs(read_logs(args.paths)))
    found = effects(study)
    rows, others = effect_rows(found, interactions(found, study))
    put(rows, args, json={"effects": rows, "interactions": others})
    if not args.csv:
        put_more(others, args, title="how an effect changes with another factor")
    remark(study.remarks)
    if args.plot:
        # matplotlib takes half a second to import.
        from analysis.plot import save
        from analysis.study.plots import effects_figure

        with writing(args.plot):
            save(effects_figure(found), args.plot)
    return 0 if found else 1
