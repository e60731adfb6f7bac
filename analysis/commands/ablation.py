"""`ablation`: what each factor of a study does."""

import argparse
import math
from pathlib import Path

from analysis.table import put, remark, text_table

DOC = "main effects and interactions of a study's factors on images/s and memory, from pairs"
EXAMPLE = "python -m analysis ablation logs/layouts-1120 --plot effects.svg"


def options(sub: argparse.ArgumentParser) -> None:
    """The plot."""
    sub.add_argument("--plot", type=Path, metavar="FILE", help="draw the effects: .png or .svg")


def act(asked: argparse.Namespace) -> int:
    """Print effects, then interactions; 1 where no two cells differ in one factor only."""
    from analysis.read.find import read_logs
    from analysis.study.ablation import effect_row, effects, interaction_row, interactions
    from analysis.study.cells import group_cells, started_runs
    from configs.errors import Unreadable

    if asked.plot and asked.plot.suffix not in (".png", ".svg"):
        raise Unreadable(f"--plot {asked.plot}: ends neither in .png nor in .svg")
    study = group_cells(started_runs(read_logs(asked.paths)))
    found = effects(study)
    rows = [effect_row(effect) for effect in found]
    others = [interaction_row(one) for one in interactions(found, study)]
    put(rows, asked, json={"effects": rows, "interactions": others})
    if others and not asked.json and not asked.csv:
        print("\nhow an effect changes with another factor\n" + text_table(others))
    for effect in found:
        for pair in effect.unlike:
            change = 100 * math.expm1(pair.change)
            remark([f"{pair.after.name}: {change:+.0f} % by {effect.factor}, unlike its siblings"])
    remark(study.remarks)
    if asked.plot:
        from analysis.study.ablation_plot import plot_effects

        plot_effects(found, study, asked.plot)
    return 0 if found else 1
