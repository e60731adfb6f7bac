"""A page on runs, made from logs alone, and its record of what it was made from."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from analysis.measure.loss_curve import AXES, axis_of
from analysis.measure.speed_table import time_rows
from analysis.read.find import read_all
from analysis.read.run_log import RunLog
from analysis.read.tar_archive import as_named
from analysis.report.html import inert_json, listing, page, section, table
from analysis.report.runs import curves_data, curves_section, runs_data, table_row
from analysis.report.samples import samples_section
from analysis.report.sections import (
    cells,
    findings,
    remarks,
    settings,
    time,
    trained_arms,
    verdicts,
)
from analysis.study.compare import compare_all
from configs.errors import Unreadable
from configs.files import read_bytes
from runs.folder import RunFolder

MOST_IMAGES = 160
LARGEST_PAGE = 1 << 28
_RECORD = re.compile(r'<script type="application/json" id="record">(.*?)</script>', re.DOTALL)


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
    rows, arms = [table_row(log) for log in logs], trained_arms(logs)
    by = axis_of(run.log for arm in arms for run in arm.runs)
    found = compare_all(arms, by=by, margin=record.margin) if arms else []
    within = f"Losses over {AXES[by]}, the same within {record.margin:.1%}."
    times = [row for row in time_rows(arms) if row["wall_s"] > 0]
    drawn = curves_data(logs)
    sections = {
        "samples": samples_section(logs, most_images=MOST_IMAGES),
        "verdicts": verdicts(arms, found),
        "cells": cells(arms, found, told=within),
        "runs": section("runs", "Runs", table(rows)),
        "curves": curves_section(drawn, logs),
        "time": time(times),
        "findings": findings(logs),
        "settings" if len(logs) == 1 else "compare": settings(logs),
        "remarks": remarks(arms),
        "unread": section("unread", "Not read", listing(unread)) if unread else "",
    }
    formats = ", ".join(dict.fromkeys(log.format for log in logs))
    count = f"{len(logs)} {'run' if len(logs) == 1 else 'runs'}"
    base = f", compared with {arms[0].name}" if len(arms) > 1 else ""
    subtitle = f"{_question(logs)}{count} ({formats}){base}"
    data = runs_data(logs, rows) | drawn | {"time": times}
    return page(record.title, subtitle, sections, data=data, record=inert_json(record.model_dump()))


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
