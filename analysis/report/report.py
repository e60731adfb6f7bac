"""One self-contained HTML page on a set of runs, and its tables as CSV beside it."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.detect.detectors import Finding, detect, finding_row
from analysis.gpus.load import explained, steady_load
from analysis.measure import speed_table
from analysis.measure.loss import (
    AXES,
    NO_TRAINING,
    CurvePair,
    LossCurve,
    factor_remark,
    loss_curve,
    pair_curves,
    pair_row,
    same_quantity,
    whole_factor,
)
from analysis.measure.overview import run_row
from analysis.measure.speed import Arm, arm_in_words, attribution, group_arms, measure_rates
from analysis.read.find import ReadLogs
from analysis.read.run_log import RunLog
from analysis.read.tar_archive import as_named
from analysis.report import effects
from analysis.report.evidence import address, command, evidence, source
from analysis.report.finetune import finetune_section, grid_section, images_section
from analysis.report.gradient_noise import noise_section
from analysis.report.html import aside, figure, page, section, table, text
from analysis.report.plots import MOST_BARS, MOST_CURVES, loss_plot, rates_plot, time_plot
from analysis.report.sample_grids import data_address, newest_grid
from analysis.study.cells import started_runs
from analysis.table import percent_text
from configs.errors import Unreadable

MOST_GRIDS = 24
MOST_FINDINGS = 200
MOST_DIFFERENCES = 12


@dataclass(frozen=True, kw_only=True)
class Report:
    """The page as HTML, and the rows of its table of runs for a CSV beside it."""

    html: str
    rows: list[dict[str, Any]]


def report(found: ReadLogs, *, title: str, beside: Path, margin: float) -> Report:
    """Return the report on the runs, with links relative to `beside`."""
    sections, subtitle = report_sections(found, beside=beside, margin=margin)
    rows = [run_row(log) for log in found.logs]
    return Report(html=page(title, subtitle, sections), rows=rows)


def report_sections(
    found: ReadLogs, *, beside: Path, margin: float, pages: Mapping[str, str] | None = None
) -> tuple[dict[str, str], str]:
    """Return the sections of a report, with the first run as baseline, and a subtitle.

    Runs that differ only in their seed are pooled as repeats of one arm, whose loss is that of its
    first run. Runs that train nothing (sample, encode, measure) are listed but not compared. The
    names of runs link to their `pages`.
    """
    logs = found.logs
    begun = started_runs(logs)
    trained = [log for log in begun if (log.config or {}).get("kind") not in NO_TRAINING]
    comparison = _compared(trained, beside, margin=margin) if trained else _Comparison()
    shown = [row | {"mfu": percent_text(row["mfu"])} for row in map(run_row, logs)]
    remarks = [as_named(line) for line in (*(why for _, why in found.unread), *comparison.remarks)]
    formats = ", ".join(dict.fromkeys(log.format for log in logs))
    sections = {
        "finetune": finetune_section(logs, beside),
        "decisions": effects.decisions_section(logs, beside),
        **comparison.first,
        "runs": section("runs", "Runs", table(shown, link=_run_link(logs, beside, pages or {}))),
        "images": images_section(logs),
        "quality": effects.quality_section(trained, beside),
        "noise": noise_section(logs, beside),
        **comparison.second,
        "findings": findings_section([(log, one) for log in logs for one in detect(log)], beside),
        "grid": grid_section(logs),
        "samples": _samples(logs),
        "remarks": section("remarks", "Remarks", *map(aside, remarks)) if remarks else "",
    }
    return sections, f"{_question(logs)}{len(logs)} runs ({formats}){comparison.base}"


@dataclass(frozen=True, kw_only=True)
class _Comparison:
    """The sections that compare trained runs, before and after the sections on each run."""

    base: str = ""
    first: Mapping[str, str] = field(default_factory=dict)
    second: Mapping[str, str] = field(default_factory=dict)
    remarks: Sequence[str] = ()


def _compared(trained: Sequence[RunLog], beside: Path, *, margin: float) -> _Comparison:
    measured = measure_rates(trained)
    compared = group_arms(measured)
    speeds = speed_table.speed_rows(compared)
    firsts = [arm.runs[0].log for arm in compared]
    # One axis for all verdicts of the page.
    by = "images" if all((log.column("images") > 0).any() for log in firsts) else "step"
    pairs = _pairs(firsts, by=by)
    return _Comparison(
        base=f", compared with {compared[0].name}",
        first={
            "cells": effects.cells_section(trained, beside, by=by, margin=margin),
            "effects": effects.effects_section(trained, beside),
            "verdicts": _verdicts(speeds, pairs, compared, beside, by=by, margin=margin),
        },
        second={
            "speed": _speed(speeds, compared),
            "loss": _loss(firsts, pairs, by=by, margin=margin),
            "differences": _differences(compared),
        },
        remarks=[
            line for run in measured for line in (*run.remarks, *explained(run, steady_load(run)))
        ],
    )


def _question(logs: Sequence[RunLog]) -> str:
    """Return the question of the runs if all have the same one, else nothing."""
    questions = {(log.config or {}).get("question") for log in logs}
    return f"{questions.pop()} " if len(questions) == 1 and None not in questions else ""


def _pairs(logs: Sequence[RunLog], *, by: str) -> list[CurvePair]:
    """Return the losses of the first run against each other's, if their ranges overlap."""
    found = []
    for other in logs[1:]:
        with suppress(Unreadable):
            found.append(pair_curves(logs[0], other, by=by))
    return found


def _verdicts(
    speeds: Sequence[Mapping[str, Any]],
    pairs: Sequence[CurvePair],
    arms: Sequence[Arm],
    beside: Path,
    *,
    by: str,
    margin: float,
) -> str:
    lines = []
    losses = {found.b.name: found for found in pairs}
    for row, arm in zip(speeds[1:], arms[1:], strict=True):
        ratio = ""
        if row["speedup"] is not None:
            value, _, interval = speed_table.speedup_text(row).partition(" ")
            ratio = f"<b>{value}</b> {interval}"
        line = f"<b>{text(arm_in_words(arms[0], arm))}</b>: {ratio} {text(row['verdict'])}"
        logs = [run.log for one in (arms[0], arm) for run in one.runs]
        commands = [command("speed", "--arms", paths=[log.path for log in logs], beside=beside)]
        if (found := losses.get(arm.runs[0].log.name)) is not None:
            line += f"; {text(_of_loss(found.verdict(margin=margin)))}"
            words, both = ("--by", by, "--margin", str(margin)), [found.a.path, found.b.path]
            commands.append(command("loss", *words, paths=both, beside=beside))
        elif not same_quantity(arms[0].runs[0].log, arm.runs[0].log, "loss"):
            line += "; losses of different terms or data, not compared"
        how = attribution(arms[0], arm)
        if found_rounds := speed_table.paired_text(row):
            how += f"; paired by {found_rounds} than unpaired"
        line += f"<br><small>{text(arm.name)}: {text(how)}</small>"
        lines.append(f"<li>{line}{evidence(logs, commands, beside)}</li>")
    if not lines:
        return ""
    return section("verdicts", "Verdicts", f'<ul class="verdicts">{"".join(lines)}</ul>')


def _of_loss(verdict: str) -> str:
    return verdict if "loss" in verdict else f"loss {verdict}"


def _speed(speeds: Sequence[Mapping[str, Any]], arms: Sequence[Arm]) -> str:
    spent = [row for row in speed_table.time_rows(arms) if row["wall_s"] > 0]
    booked = [row for row in spent if len(row) > 3]
    rates = "Steady rate and its 95 % interval" + _more(speeds)
    shares = "Shares of the wall time without the queue" + _more(booked)
    has_rate = any(row["steps_per_s"] is not None for row in speeds)
    return section(
        "speed",
        "Speed",
        figure(rates_plot(speeds), rates) if has_rate else "",
        table([speed_table.display_row(row) for row in speeds]),
        "<h3>Time by purpose, in seconds</h3>" + table(spent) if spent else "",
        figure(time_plot(booked), shares) if booked else "",
    )


def _more(rows: Sequence[Mapping[str, Any]]) -> str:
    return f"; the first {MOST_BARS} of {len(rows)} runs" if len(rows) > MOST_BARS else ""


def _loss(logs: Sequence[RunLog], pairs: Sequence[CurvePair], *, by: str, margin: float) -> str:
    curves: list[LossCurve] = []
    unlike = [log.name for log in logs if not same_quantity(logs[0], log, "loss")]
    for log in (log for log in logs if log.name not in unlike):
        with suppress(Unreadable):
            curves.append(loss_curve(log, by=by))
    if not curves:
        return ""
    scales = [(found, whole_factor(found)) for found in pairs]
    more = f"; the first {MOST_CURVES} of {len(curves)} runs" if len(curves) > MOST_CURVES else ""
    return section(
        "loss",
        "Loss",
        figure(loss_plot(curves, by=by), f"Training loss over {AXES[by]}{more}"),
        table([pair_row(found, margin=margin) for found in pairs]) if pairs else "",
        aside(f"The same means within {margin:.1%} of the first run's mean loss."),
        aside(
            "Not drawn, for a loss of other terms, or of pixels or latents of another VAE: "
            f"{', '.join(unlike)}."
        )
        if unlike
        else "",
        *(aside(factor_remark(found, factor)) for found, factor in scales if factor is not None),
    )


def _differences(arms: Sequence[Arm]) -> str:
    parts = []
    for arm in arms[1 : MOST_DIFFERENCES + 1]:
        rows = speed_table.difference_rows(arms[0], arm)
        parts.append(f"<h3>{text(arm.name)} against {text(arms[0].name)}</h3>")
        parts.append(aside(attribution(arms[0], arm)))
        parts.append(table(rows) if rows else "")
    return section("differences", "What differs", *parts) if parts else ""


def findings_section(found: Sequence[tuple[RunLog, Finding]], beside: Path) -> str:
    """Return what the detectors found in runs, linked to the lines that show it."""
    if not found:
        return section("findings", "Findings", aside("The detectors found nothing."))
    shown = [finding_row(log, one) for log, one in found[:MOST_FINDINGS]]
    places = {
        id(row): address(one.path or source(log), beside, line=one.line)
        for row, (log, one) in zip(shown, found, strict=False)
    }
    linked = table(shown, link=lambda head, row: places[id(row)] if head == "line" else None)
    left = len(found) - len(shown)
    return section("findings", "Findings", linked, aside(f"{left} more") if left else "")


def _samples(logs: Sequence[RunLog]) -> str:
    cells = []
    for log in logs[:MOST_GRIDS]:
        grid = newest_grid(log.path)
        address = data_address(grid) if grid else None
        if grid and address:
            caption = f"{log.name}, {grid.stem}"
            cells.append(
                f'<figure><img src="{address}" alt="{text(caption)}">'
                f"<figcaption>{text(caption)}</figcaption></figure>"
            )
    inside = f'<div class="grids">{"".join(cells)}</div>'
    return section("samples", "Samples", inside) if cells else ""


def _run_link(logs: Sequence[RunLog], beside: Path, pages: Mapping[str, str]) -> Any:
    """Return a function that links a run to its page, and its last step and loss to their line."""
    lines = {log.name: address(source(log), beside, line=log.line[-1]) for log in logs if len(log)}
    links = {"run": pages, "step": lines, "loss": lines}
    return lambda head, row: links.get(head, {}).get(row["run"])
