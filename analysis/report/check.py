"""Compare the numbers of a report with those that its sources give now."""

import re
from itertools import zip_longest
from pathlib import Path
from typing import Any

from analysis.report.build import LARGEST_PAGE, build, read_record, without_record
from configs.files import read_bytes

_LONGEST_PLACE = 60
# No name of a tag such as h2.
_NUMBER = re.compile(r"\b\d")
_CODE = re.compile(r"<(style|script)>.*?</\1>", re.DOTALL)


def check(path: Path) -> tuple[list[dict[str, Any]], list[str], int]:
    """Return a row per number, word or file that differs, remarks, and how many numbers agree.

    The files are made again from the sources of the record, so every number is recomputed. The
    remarks name sources that changed, and pages that are not the report's. Raise `Unreadable` if
    the record or a source is missing.
    """
    folder = path if path.is_dir() else path.parent
    record = read_record(path)
    # A page may have been renamed.
    made = build(record.model_copy(update={"page": record.page and path.name}), folder)
    rows: list[dict[str, Any]] = []
    agreeing = 0
    for name, fresh in made.files.items():
        file = folder / name
        here = read_bytes(file, most=LARGEST_PAGE) if file.is_file() else b""
        is_page = name.endswith(".html")
        pages = [without_record(one.decode(errors="replace")) for one in (here, fresh)]
        lines = zip_longest(*(_CODE.sub("", one).split("\n") for one in pages))
        for number, both in enumerate(lines if is_page else (), start=1):
            place = re.sub("<[^>]*>", " ", both[1] or both[0] or "")[:_LONGEST_PLACE].split()
            pairs = list(zip_longest(*(re.split(r'[<>,\s"]+', line or "") for line in both)))
            agreeing += sum(a == b and bool(_NUMBER.search(a)) for a, b in pairs)
            rows += [
                {"page": name, "line": number, "of": " ".join(place), "here": a, "recomputed": b}
                for a, b in pairs
                if a != b
            ]
        is_other = pages[0] != pages[1] if is_page else here != fresh
        if is_other and all(row["page"] != name for row in rows):
            rows.append({"page": name, "of": "the whole file", "here": "other bytes or none"})
    unlike = {*record.hashes.items()} ^ {*made.record.hashes.items()}
    sources = sorted({source for source, _ in unlike})
    remarks = [f"{source}: not the file that the report was made from" for source in sources]
    if record.page is None:
        pages_here = sorted(one.relative_to(folder).as_posix() for one in folder.rglob("*.html"))
        foreign = [one for one in pages_here if one not in made.files]
        remarks += [f"{one}: not a page of this report" for one in foreign]
    return rows, remarks, agreeing
