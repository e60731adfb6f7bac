"""The files of a site, made from logs alone, and its record of what it was made from."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from analysis.audit.markdown_table import judged
from analysis.read.find import read_all
from analysis.read.run_log import RunLog
from analysis.read.tar_archive import as_named
from analysis.report.evidence import file_of, relative, source
from analysis.site.curves import ALL_POINTS, MOST_POINTS
from analysis.site.pages import STATIC, Group, Pages
from analysis.site.samples import samples
from configs.errors import Unreadable
from configs.files import read_bytes
from configs.gpus import read_rates
from runs.folder import RunFolder
from runs.study_folder import study_of

RECORD = "site.json"
FEWEST_POINTS = 50


def _path(text: str) -> str:
    if "\0" in text:
        raise ValueError("a NUL is in no path")
    return text


Name = Annotated[str, AfterValidator(_path)]


class SiteRecord(BaseModel):
    """The sources of a site: paths relative to its folder, a hash of each file read; its pages."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    title: str
    margin: float = Field(gt=0, lt=1)
    paths: list[Name]
    claims: list[Name] = []
    rates: Name | None = None
    hashes: dict[str, str] = {}
    pages: list[str] = []


@dataclass(frozen=True, kw_only=True)
class BuiltSite:
    """The files of a site by their path in it, and why runs could not be read."""

    files: Mapping[str, bytes]
    record: SiteRecord
    unread: Sequence[str]


def read_record(site: Path) -> SiteRecord:
    """Return the record of a site; raise `Unreadable` if the folder holds none."""
    try:
        return SiteRecord.model_validate_json(read_bytes(site / RECORD))
    except (OSError, ValidationError) as error:
        why = f"not the record of a site ({error}); name the folder that --out named"
        raise Unreadable(f"{site / RECORD}: {why}") from None


def build(record: SiteRecord, out: Path) -> BuiltSite:
    """Return the site that belongs into the folder `out`; its record has the hashes.

    Raise `Unreadable` if a path has no run, or a file of claims or rates cannot be read.
    """
    places = {name: (out / name).resolve() for name in (*record.paths, *record.claims)}

    def told(remark: str) -> str:
        """Name files as the record does, wherever the site lies."""
        for name, place in places.items():
            remark = as_named(remark).replace(str(place), name)
        return remark

    claims = {
        places[name]: [row | {"why": told(row["why"])} for row in judged(places[name])]
        for name in record.claims
    }
    rates = None if record.rates is None else (out / record.rates).resolve()
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
    pages = Pages(
        title=record.title, out=out, margin=record.margin, rates_file=rates,
        rates=read_rates(rates) if rates else {},
        most=max(min(MOST_POINTS, ALL_POINTS // len(logs)), FEWEST_POINTS),
    )  # fmt: skip
    groups = _groups(list(logs.values()))
    made = {"index.html": pages.index(groups, claims, unread)}
    for group in groups:
        made[f"{group.name}/index.html"] = pages.group(group)
        made |= {f"{group.name}/{file}": pages.run(group, log) for file, log in group.runs.items()}
    files = {file: page.encode() for file, page in made.items()}
    read = [*claims, *([rates] if rates else [])]
    for log in logs.values():
        run = RunFolder(log.path)
        read += map(file_of, (source(log), run.config_file, run.manifest_file, run.metrics_file))
        files |= {one.file: one.png for one in samples(log)}
    hashes = {
        relative(path, out): sha256(read_bytes(path, most=2**31)).hexdigest()
        for path in dict.fromkeys(read)
        if path.is_file()
    }
    full = record.model_copy(update={"hashes": hashes, "pages": list(made)})
    files |= {one.name: one.read_bytes() for one in STATIC.iterdir() if one.suffix != ".css"}
    files[RECORD] = full.model_dump_json(indent=1).encode()
    return BuiltSite(files=files, record=full, unread=unread)


def _groups(logs: Sequence[RunLog]) -> list[Group]:
    """Return the runs by their study, by their archive, or by the folder that they lie in."""
    by_folder: dict[Path, list[RunLog]] = {}
    for log in logs:
        study = study_of(log.path)
        by_folder.setdefault(study.path if study else log.path.parent, []).append(log)
    taken, groups = {"images"}, []
    for folder, members in by_folder.items():
        pages = {"index"}
        groups.append(Group(
            name=_file_name(Path(as_named(str(folder))).name.partition(".tar")[0], taken),
            runs={f"{_file_name(log.name, pages)}.html": log for log in members},
        ))  # fmt: skip
    return groups


def _file_name(name: str, taken: set[str]) -> str:
    """Return a name that any file system and address can hold, unlike those `taken`."""
    stem = re.sub(r"[^A-Za-z0-9_=.-]+", "-", name).strip(".-")[:80] or "run"
    number, found = 1, stem
    while found.lower() in taken:
        number += 1
        found = f"{stem}-{number}"
    taken.add(found.lower())
    return found
