"""`export --figure`: a figure for a paper, as PDF or SVG, and the text of its caption beside it."""

import argparse
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from analysis.commands import plot_file, writing
from analysis.gradient_noise.stages import read_noise
from analysis.gradient_noise.table import noise_by_stage
from analysis.measure.loss import Compared, loss_contrast
from analysis.measure.loss_curve import AXES, NO_TRAINING, loss_curve
from analysis.measure.scaling import curves
from analysis.measure.speed import measure_rates
from analysis.observations import group_alike, is_repeat
from analysis.read.find import places, read_logs
from analysis.read.run_log import RunLog
from analysis.study.cells import started_runs
from analysis.study.cells_table import cell_rows, hardware_text
from analysis.table import remark
from configs.disk import replace_file
from configs.errors import Unreadable

EXAMPLE = "ditbench export --figure cells logs/layouts-1120 --out cells.pdf --width 3.3in"
# As many colours are told apart.
MOST_LINES = 8
FILLED = "Filled: the same loss as the first within 1 %; open: different or undetermined."
BANDS = (
    "Of three seeds or more: geometric mean and its interval; of fewer: a line each, no interval."
)


def options(parser: argparse.ArgumentParser) -> None:
    """Add what to draw, the file, and its width."""
    out = partial(plot_file, kinds=(".pdf", ".svg"))
    parser.add_argument("of", choices=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--out", type=out, required=True, metavar="FILE", help=".pdf or .svg")
    parser.add_argument("--width", type=_inches, default=3.3, help="3.3in (default), 84mm, 17cm")
    parser.add_argument("--by", choices=AXES, default="step", help="the axis of loss")
    parser.add_argument("--metric", default="loss", help="draw this evaluation in place of loss")


def _inches(text: str) -> float:
    match = re.fullmatch(r"(\d+\.?\d*) ?(in|cm|mm)", text)
    width = float(match[1]) / {"in": 1.0, "cm": 2.54, "mm": 25.4}[match[2]] if match else 0.0
    if not 2 <= width <= 20:
        raise argparse.ArgumentTypeError(
            f"{text!r}: width must be 2 to 20 inches, such as 3.3in or 84mm"
        )
    return width


def run(args: argparse.Namespace) -> int:
    """Write the figure and its caption, and print the caption."""
    # matplotlib takes half a second to import.
    from analysis.plot import on_paper, save

    beside = args.out.with_suffix(".txt")
    with on_paper(args.width):
        figure, caption, logs = KINDS[args.of](args)
        timed = (run.clock for run in measure_rates(logs) if run.summary)
        clocks = ", ".join(dict.fromkeys(timed)) or "none"
        on = hardware_text(logs) or "hardware that no run recorded"
        with writing(args.out):
            save(figure, args.out)
            replace_file(beside, f"{caption} Clock: {clocks}. Measured on {on}.\n")
    print(beside.read_text(encoding="utf-8"), end="")
    remark([f"{args.out}, {beside}"])
    return 0


def _cells(args: argparse.Namespace) -> Any:
    from analysis.study.plots import cells_figure

    logs, arms = _arms(args)
    rows = cell_rows(logs, compared=Compared())
    if not any(row["steps_per_s"] or row["units_per_s"] for row in rows):
        raise Unreadable(f"{args.paths[0]}: no run has a rate")
    single = [len(arm) == 1 for arm in arms]
    mixed = "; within the run where both cells have one" if any(single) else ""
    between = "within each run" if all(single) else f"between runs{mixed}"
    caption = f"Speed of cells, 95 % intervals {between}; {_count(arms, 'run')}. {FILLED}"
    labels = [arm[0].name.replace("_", ", ") for arm in arms]
    return cells_figure(rows, labels, label_chars=int(7 * args.width)), caption, logs


def _loss(args: argparse.Namespace) -> Any:
    from analysis.measure.loss_plot import losses_figure, thinned

    logs, arms = _arms(args)
    # Repeats of one seed have the same losses.
    arms = [_first_of_seeds(arm) for arm in arms]
    for arm in _few(arms)[1:]:
        contrast = loss_contrast(logs[:1], arm[:1], Compared(of=args.metric, by=args.by))
        if contrast.is_refused:
            raise Unreadable(f"{logs[0].name} and {arm[0].name}: {contrast.why}")
    found = [[thinned(loss_curve(log, by=args.by, of=args.metric)) for log in arm] for arm in arms]
    labels = [arm[0].name for arm in arms]
    figure = losses_figure(found, labels, by=args.by, of=args.metric, height=3 + 0.1 * len(arms))
    what = f"{args.metric} over {AXES[args.by]}, 95 % intervals; {_count(arms, 'seed')}"
    return figure, f"{what.replace('_', ' ').capitalize()}. {BANDS}", logs


def _scaling(args: argparse.Namespace) -> Any:
    from analysis.study.plots import scaling_figure

    every = read_logs(args.paths)
    found, _ = curves(every)
    if not found:
        why = "no two runs differ in the number of ranks only"
        raise Unreadable(f"{args.paths[0]}: cannot draw scaling: {why}")
    logs = [log for log in every if any(log.name in one.names for one in found)]
    caption = f"Speedup and efficiency by ranks, 95 % intervals; n = {len(logs)} runs."
    return scaling_figure(_few(found)), caption, logs


def _noise(args: argparse.Namespace) -> Any:
    from analysis.gradient_noise.plot import noise_figure

    runs = _few([run for place in places(args.paths) for run in place.ours])
    noises = [read_noise(run, stages=10) for run in runs]
    found = [(noise.name, noise_by_stage(noise)) for noise in noises]
    stages = [stage for _, own in found for stage in own]
    if not any(stage.scale.b_simple for stage in stages):
        raise Unreadable(f"{args.paths[0]}: B_simple is undetermined in every stage")
    samples = _count([stage.stage.whole for stage in stages], "sample")
    caption = f"Gradient noise scale, 95 % intervals; {samples} stage. Gaps: undetermined."
    return noise_figure(found, panel_height=2.2), caption, read_logs(args.paths)


# Each returns the figure, the caption and the runs in it.
KINDS = {"cells": _cells, "loss": _loss, "noise": _noise, "scaling": _scaling}


def _arms(args: argparse.Namespace) -> tuple[list[RunLog], list[list[RunLog]]]:
    """Return the runs that have begun and train, and their arms, or raise `Unreadable`."""
    logs = started_runs(read_logs(args.paths))
    trained = [log for log in logs if (log.config or {}).get("kind") not in NO_TRAINING]
    if not trained:
        raise Unreadable(
            f"{args.paths[0]}: no training has begun in it; of gradients: --figure noise"
        )
    return trained, group_alike(trained, is_repeat)


def _first_of_seeds(arm: Sequence[RunLog]) -> list[RunLog]:
    found: dict[int | None, RunLog] = {}
    for log in arm:
        found.setdefault((log.config or {}).get("seed"), log)
    return list(found.values())


def _few(lines: list[Any]) -> list[Any]:
    if len(lines) > MOST_LINES:
        raise Unreadable(f"{len(lines)} lines: more than {MOST_LINES}; name fewer runs")
    return lines


def _count(groups: Sequence[Any], noun: str) -> str:
    counts = sorted({len(group) for group in groups})
    span = " to ".join(map(str, dict.fromkeys([counts[0], counts[-1]])))
    return f"n = {span} {noun}{'' if counts == [1] else 's'} each"
