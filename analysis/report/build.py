"""A page on runs, made from logs alone, and its record of what it was made from."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from analysis.gpus.load import explained, steady_load
from analysis.measure.arms import Arm, group_arms
from analysis.measure.detectors import detect
from analysis.measure.differences import yaml_text
from analysis.measure.loss_curve import AXES, NO_TRAINING, axis_of
from analysis.measure.rate import measure_rates
from analysis.measure.time_breakdown import time_rows
from analysis.read.find import read_all
from analysis.read.machine import machine
from analysis.read.run_log import RunLog
from analysis.read.tar_archive import as_named
from analysis.report.html import aside, folded, inert_json, listing, page, section, table, text
from analysis.report.runs import curves_data, curves_parts, runs_data, table_row
from analysis.report.samples import samples
from analysis.study.cells import hardware_text, rows_of, started_runs
from analysis.study.compare import compare_all, told
from analysis.table import for_people
from configs.errors import Unreadable
from configs.files import read_bytes
from configs.table import Row
from runs.folder import RunFolder

MOST_IMAGES, MOST_FINDINGS = 160, 200
LARGEST_PAGE = 1 << 28
_RECORD = re.compile(r'<script type="application/json" id="record">(.*?)</script>', re.DOTALL)
_LONGEST_PLACE = 60
# No name of a tag such as h2.
_NUMBER = re.compile(r"\b\d")
_CODE = re.compile(r"<(style|script)>.*?</\1>", re.DOTALL)


class ReportRecord(BaseModel):
    """The sources of a page: paths relative to its folder, and hashes of the files read."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    title: str
    margin: float = Field(gt=0, lt=1)
    paths: list[Annotated[str, Field(pattern=r"^[^\x00]*$")]]
    hashes: dict[str, str] = {}


@dataclass(frozen=True, kw_only=True)
class Report:
    """A page, and why runs could not be read."""

    page: str
    record: ReportRecord
    unread: Sequence[str]


def read_record(file: Path) -> ReportRecord:
    """Return the record of a page; raise `Unreadable` if there is none."""
    try:
        found = _RECORD.search(read_bytes(file, most=LARGEST_PAGE).decode())
        if found is None:
            raise ValueError("it holds none")
        return ReportRecord.model_validate_json(found[1])
    except (OSError, ValueError, ValidationError) as error:
        why = f"no record of a report ({error}); name a page that `report` wrote"
        raise Unreadable(f"{file}: {why}") from None


def without_record(html: str) -> str:
    """Return a page without its record, which has no number to compare."""
    return _RECORD.sub("", html)


def build(record: ReportRecord, out: Path) -> Report:
    """Return the report whose page belongs into the folder `out`; its record has the hashes.

    Raise `Unreadable` if a path has no run.
    """
    places = {name: (out / name).resolve() for name in record.paths}

    def told(remark: str) -> str:
        """Name files as the record does, wherever the report lies."""
        for name, place in places.items():
            remark = as_named(remark).replace(str(place), name)
        return remark

    found = [read_all([str(places[name])]) for name in record.paths]
    # A path may lie in another; runs of one file have names.
    logs = {
        (log.path, log.format == "ditbench" or log.name): replace(
            log, remarks=tuple(map(told, log.remarks))
        )
        for one in found
        for log in one.logs
    }
    unread = [told(why) for one in found for _, why in one.unread]
    if not logs:
        raise Unreadable("\n".join(unread))
    runs = list(logs.values())
    full = record.model_copy(update={"hashes": _hashes(runs, out)})
    html = _page(runs, full, unread)
    return Report(page=html, record=full, unread=unread)


def _page(logs: Sequence[RunLog], record: ReportRecord, unread: Sequence[str]) -> str:
    """Return the page on runs, which are compared with the first."""
    rows = [table_row(log) for log in logs]
    trained = [
        log for log in started_runs(logs) if (log.config or {}).get("kind") not in NO_TRAINING
    ]
    arms = group_arms(measure_rates(trained))
    by = axis_of(trained)
    found = compare_all(arms, by=by, margin=record.margin) if arms else []
    drawn = curves_data(logs)
    faults = [row for log in logs for row in detect(log)]
    more = len(faults) - MOST_FINDINGS
    runs = [run for arm in arms for run in arm.runs]
    times = [row for row in time_rows(run.log for run in runs) if row["wall_s"]]
    remarks = [line for run in runs for line in (*run.remarks, *explained(run, steady_load(run)))]
    within = f"Losses over {AXES[by]}, the same within {record.margin:.1%}."
    hardware = f"On {hardware_text([run.log for run in runs])}. {within}"
    cells = [for_people(row) for row in rows_of(arms, found)] if arms else []
    titled = {
        "samples": ("Samples", [samples(logs, most_images=MOST_IMAGES)]),
        "verdicts": ("Verdicts", [_verdicts(arms, found)]),
        "cells": ("Cells", [table(cells), aside(hardware)] if cells else []),
        "runs": ("Runs", [table(rows)]),
        "curves": ("Curves", curves_parts(drawn, logs)),
        "time": (
            "Time by purpose, in seconds",
            [table(times), '<div id="shares"></div>'] if times else [],
        ),
        "findings": (
            "Findings",
            [
                table(faults[:MOST_FINDINGS]) if faults else aside("The detectors found nothing."),
                aside(f"{more} more") if more > 0 else "",
            ],
        ),
        "settings": ("Config and machine", _settings(logs[0]) if len(logs) == 1 else []),
        "compare": ("Two runs side by side", ['<div id="configs"></div>'] if len(logs) > 1 else []),
        "remarks": ("Remarks", [listing(remarks)]),
        "unread": ("Not read", [listing(unread)]),
    }
    sections = {
        name: section(name, title, *parts) for name, (title, parts) in titled.items() if any(parts)
    }
    formats = ", ".join(dict.fromkeys(log.format for log in logs))
    count = f"{len(logs)} {'run' if len(logs) == 1 else 'runs'}"
    base = f", compared with {arms[0].name}" if len(arms) > 1 else ""
    subtitle = f"{_question(logs)}{count} ({formats}){base}"
    data = runs_data(logs, rows) | drawn | {"time": times}
    return page(record.title, subtitle, sections, data=data, record=inert_json(record.model_dump()))


def _verdicts(arms: Sequence[Arm], found: Sequence[Row]) -> str:
    """Return what `compare` says of each arm's speed, loss and quality against the first."""
    lines = []
    for arm in arms[1:]:
        words = "<br>".join(text(told(row)) for row in found if row["run"] == arm.name)
        lines.append(f"<li><b>{text(arm.name)}</b><br>{words}</li>")
    return f'<ul class="verdicts">{"".join(lines)}</ul>' if lines else ""


def _settings(log: RunLog) -> list[str]:
    """Return the config and the machine of a run."""
    known = {"Config": log.config or {}, "Machine": machine(log.facts)}
    return [
        folded(title, table([{"name": n, "value": yaml_text(value)} for n, value in facts.items()]))
        for title, facts in known.items()
        if facts
    ]


def _hashes(logs: Sequence[RunLog], out: Path) -> Mapping[str, str]:
    """Return the SHA-256 of all files that numbers come from, by their path from the report."""
    read: dict[Path, None] = {}
    for log in logs:
        run = RunFolder(log.path)
        own = (log.source or log.path, run.config_file, run.manifest_file, run.metrics_file)
        read |= dict.fromkeys(filter(None, map(_file_of, own)))
    return {
        os.path.relpath(path.resolve(), out.resolve()): sha256(
            read_bytes(path, most=2**31)
        ).hexdigest()
        for path in read
    }


def _file_of(path: Path) -> Path | None:
    """Return a file, or the archive that it was unpacked from."""
    named = Path(as_named(str(path)))
    return next((one for one in (named, *named.parents) if one.is_file()), None)


def _question(logs: Sequence[RunLog]) -> str:
    """Return the question of the runs if all have the same one, else nothing."""
    questions = {(log.config or {}).get("question") for log in logs}
    return f"{questions.pop()} " if len(questions) == 1 and None not in questions else ""


def check(page: Path) -> tuple[list[dict[str, Any]], list[str], int]:
    """Return a row per number or word that differs, remarks, and how many numbers agree.

    The page is made again from the sources of the record, so every number is recomputed. The
    remarks name sources that changed. Raise `Unreadable` if the record or a source is missing.
    """
    record = read_record(page)
    made = build(record, page.parent)
    here = without_record(read_bytes(page, most=LARGEST_PAGE).decode(errors="replace"))
    fresh = without_record(made.page)
    rows: list[dict[str, Any]] = []
    agreeing = 0
    lines = zip_longest(*(_CODE.sub("", one).split("\n") for one in (here, fresh)))
    for number, both in enumerate(lines, start=1):
        place = re.sub("<[^>]*>", " ", both[1] or both[0] or "")[:_LONGEST_PLACE].split()
        pairs = list(zip_longest(*(re.split(r'[<>,\s"]+', line or "") for line in both)))
        agreeing += sum(a == b and bool(_NUMBER.search(a)) for a, b in pairs)
        rows += [
            {"line": number, "of": " ".join(place), "here": a, "recomputed": b}
            for a, b in pairs
            if a != b
        ]
    if here != fresh and not rows:
        rows.append({"of": "the scripts or the style", "here": "other bytes"})
    unlike = {*record.hashes.items()} ^ {*made.record.hashes.items()}
    sources = sorted({source for source, _ in unlike})
    remarks = [f"{source}: not the file that the report was made from" for source in sources]
    return rows, remarks, agreeing
