"""The files of a report, made from logs alone, and its record of what it was made from.

A report is one page, or a folder: a page that lists all runs, one per study, and their samples.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from analysis.measure.overview import run_row
from analysis.read.find import read_all
from analysis.read.run_log import RunLog
from analysis.read.tar_archive import as_named
from analysis.report.evidence import address, file_of, relative, source
from analysis.report.html import inert_json, listing, page, section, table
from analysis.report.runs import curves_data, curves_section, runs_data, runs_section, table_row
from analysis.report.samples import Picture, samples_section
from analysis.report.sections import study_sections
from configs.errors import Unreadable
from configs.files import read_bytes
from configs.gpus import read_rates
from configs.table import csv_text
from runs.folder import RunFolder
from runs.study_folder import study_of

INDEX = "index.html"
# In one page images are part of its text; in a folder they are files.
MOST_IMAGES, MOST_FILES = 160, 2000
LARGEST_PAGE = 1 << 28
_RECORD = re.compile(r'<script type="application/json" id="record">(.*?)</script>', re.DOTALL)


def _path(name: str) -> str:
    if "\0" in name:
        raise ValueError("a NUL is in no path")
    return name


Name = Annotated[str, AfterValidator(_path)]
PageName = Annotated[str, Field(pattern=r"^[^/\\\x00]+$")]


class ReportRecord(BaseModel):
    """The sources of a report: paths relative to its folder, hashes of the files read; its pages.

    `page` is the name of its one page; None for a folder.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    title: str
    margin: float = Field(gt=0, lt=1)
    paths: list[Name]
    page: PageName | None = None
    rates: Name | None = None
    hashes: dict[str, str] = {}
    pages: list[PageName] = []


@dataclass(frozen=True, kw_only=True)
class Report:
    """The files of a report by their path in its folder, and why runs could not be read."""

    files: Mapping[str, bytes]
    record: ReportRecord
    unread: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class _Pages:
    """Settings shared by the pages of a report; `images` collects the files of a folder."""

    record: ReportRecord
    out: Path
    rates: Mapping[str, float]
    images: dict[str, bytes] = field(default_factory=dict)

    def runs(
        self, logs: Sequence[RunLog], title: str, *, more: Mapping[str, str], **options: Any
    ) -> str:
        """Return the page on runs that are compared; `more` are sections below the others."""
        rows = [table_row(log, self.rates) for log in logs]
        first, second, base, told = study_sections(logs, margin=self.record.margin, beside=self.out)
        drawn = curves_data(logs)
        lines = [
            address(source(log), self.out, line=log.line[-1]) if len(log) else "" for log in logs
        ]
        most = MOST_IMAGES if self.record.page else MOST_FILES
        sections = {
            "samples": samples_section(logs, self._address, most_images=most),
            **first,
            "runs": runs_section(rows, {"step": lines, "loss": lines}),
            "curves": curves_section(drawn, logs),
            **second,
            "remarks": section("remarks", "Remarks", listing(told)) if told else "",
            **more,
        }
        formats = ", ".join(dict.fromkeys(log.format for log in logs))
        count = f"{len(logs)} {'run' if len(logs) == 1 else 'runs'}"
        subtitle = f"{_question(logs)}{count} ({formats}){base}"
        data = runs_data(logs, rows) | drawn
        return page(title, subtitle, sections, data=data, **options)

    def _address(self, image: Picture) -> str:
        """Return where a page finds an image: in itself, or in the folder of images."""
        if self.record.page:
            return f"data:image/{image.suffix};base64,{base64.b64encode(image.content).decode()}"
        name = f"images/{sha256(image.content).hexdigest()[:16]}.{image.suffix}"
        self.images[name] = image.content
        return name

    def index(
        self, groups: Mapping[str, Sequence[RunLog]], more: Mapping[str, str], record: str
    ) -> str:
        """Return the page that lists the studies and all runs of a folder."""
        logs = [log for members in groups.values() for log in members]
        names = [name for name, members in groups.items() for _ in members]
        rows = [
            {"run": log.name, "study": name} | table_row(log, self.rates)
            for name, log in zip(names, logs, strict=True)
        ]
        pages = [
            f"{name}.html#filter={quote('run=' + chr(34) + log.name + chr(34), safe='')}"
            for name, log in zip(names, logs, strict=True)
        ]
        studies = [_study_row(name, members) for name, members in groups.items()]
        sections = {
            "studies": section("studies", "Studies and folders", table(studies, link=_study)),
            "runs": runs_section(rows, {"run": pages}),
            "compare": section("compare", "Two runs side by side", '<div id="configs"></div>'),
            **more,
        }
        subtitle = f"{len(groups)} studies and folders, {len(logs)} runs"
        return page(
            self.record.title, subtitle, sections, data=runs_data(logs, rows), record=record
        )


def read_record(path: Path) -> ReportRecord:
    """Return the record of a page, or of a folder's first; raise `Unreadable` if there is none."""
    file = path / INDEX if path.is_dir() else path
    try:
        found = _RECORD.search(read_bytes(file, most=LARGEST_PAGE).decode())
        if found is None:
            raise ValueError("it holds none")
        return ReportRecord.model_validate_json(found[1])
    except (OSError, ValueError, ValidationError) as error:
        why = f"no record of a report ({error}); name a page or folder that `report` wrote"
        raise Unreadable(f"{file}: {why}") from None


def without_record(html: str) -> str:
    """Return a page without its record, which has no number to compare."""
    return _RECORD.sub("", html)


def build(record: ReportRecord, out: Path) -> Report:
    """Return the report that belongs into the folder `out`; its record has the hashes.

    Raise `Unreadable` if a path has no run, or the file of rates cannot be read.
    """
    places = {name: (out / name).resolve() for name in record.paths}

    def told(remark: str) -> str:
        """Name files as the record does, wherever the report lies."""
        for name, place in places.items():
            remark = as_named(remark).replace(str(place), name)
        return remark

    rates_file = None if record.rates is None else (out / record.rates).resolve()
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
    full = record.model_copy(
        update={"hashes": _hashes(runs, [rates_file] if rates_file else [], out)}
    )
    pages = _Pages(record=record, out=out, rates=read_rates(rates_file) if rates_file else {})
    more = {"unread": section("unread", "Not read", listing(unread)) if unread else ""}
    rows = [table_row(log, pages.rates) for log in runs]
    if record.page:
        first = record.page
        full = full.model_copy(update={"pages": [first]})
        made = {
            first: pages.runs(runs, record.title, more=more, record=inert_json(full.model_dump()))
        }
    else:
        first, groups = INDEX, _groups(runs)
        up = (record.title, INDEX)
        own = {
            f"{name}.html": pages.runs(members, name, more={}, above=up)
            for name, members in groups.items()
        }
        full = full.model_copy(update={"pages": [first, *own]})
        made = {first: pages.index(groups, more, inert_json(full.model_dump())), **own}
    files = {name: page.encode() for name, page in made.items()} | pages.images
    files[str(Path(first).with_suffix(".csv"))] = f"{csv_text(rows)}\n".encode()
    return Report(files=files, record=full, unread=unread)


def _hashes(logs: Sequence[RunLog], read: list[Path], out: Path) -> dict[str, str]:
    """Return the SHA-256 of all files that numbers come from, by their path from the report."""
    for log in logs:
        run = RunFolder(log.path)
        read += map(file_of, (source(log), run.config_file, run.manifest_file, run.metrics_file))
    return {
        relative(path, out): sha256(read_bytes(path, most=2**31)).hexdigest()
        for path in dict.fromkeys(read)
        if path.is_file()
    }


def _question(logs: Sequence[RunLog]) -> str:
    """Return the question of the runs if all have the same one, else nothing."""
    questions = {(log.config or {}).get("question") for log in logs}
    return f"{questions.pop()} " if len(questions) == 1 and None not in questions else ""


def _study_row(name: str, logs: Sequence[RunLog]) -> dict[str, Any]:
    states = [run_row(log)["state"] or "unknown" for log in logs]
    counts = ", ".join(f"{states.count(one)} {one}" for one in dict.fromkeys(states))
    return {"study": name, "question": _question(logs) or None, "runs": len(logs), "states": counts}


def _study(head: str, row: Mapping[str, Any]) -> str | None:
    return f"{row['study']}.html" if head == "study" else None


def _groups(logs: Sequence[RunLog]) -> dict[str, list[RunLog]]:
    """Return the runs by their study, by their archive, or by the folder that they lie in."""
    by_folder: dict[Path, list[RunLog]] = {}
    for log in logs:
        study = study_of(log.path)
        by_folder.setdefault(study.path if study else log.path.parent, []).append(log)
    taken = {"index"}
    return {
        _file_name(Path(as_named(str(folder))).name.partition(".tar")[0], taken): members
        for folder, members in by_folder.items()
    }


def _file_name(name: str, taken: set[str]) -> str:
    """Return a name that any file system and address can hold, unlike those `taken`."""
    stem = re.sub(r"[^A-Za-z0-9_=.-]+", "-", name).strip(".-")[:80] or "runs"
    number, found = 1, stem
    while found.lower() in taken:
        number += 1
        found = f"{stem}-{number}"
    taken.add(found.lower())
    return found
