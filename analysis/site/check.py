"""Compare the numbers of a site with those that its sources give now."""

import re
from itertools import zip_longest
from pathlib import Path
from typing import Any

from analysis.site.build import RECORD, build, read_record
from configs.files import read_bytes

_LONGEST_PLACE = 60
# No name of a tag such as h2.
_NUMBER = re.compile(r"\b\d")


def check(site: Path) -> tuple[list[dict[str, Any]], list[str], int]:
    """Return a row per number, word or file that differs, remarks, and how many numbers agree.

    The files are made again from the sources of the record, so every number is recomputed. The
    remarks name sources that changed, and pages that are not the site's. Raise `Unreadable` if the
    record or a source is missing.
    """
    before, made = read_record(site).hashes, build(read_record(site), site)
    rows: list[dict[str, Any]] = []
    agreeing = 0
    for name in (name for name in made.files if name != RECORD):
        file, fresh = site / name, made.files[name]
        here = read_bytes(file) if file.is_file() else b""
        both = [one.decode(errors="replace").split("\n") for one in (here, fresh)]
        is_page = name.endswith(".html")
        for number, lines in enumerate(zip_longest(*both) if is_page else (), start=1):
            place = re.sub("<[^>]*>", " ", lines[1] or lines[0] or "")[:_LONGEST_PLACE].split()
            pairs = list(zip_longest(*(re.split(r'[<>,\s"]+', line or "") for line in lines)))
            agreeing += sum(a == b and bool(_NUMBER.search(a)) for a, b in pairs)
            rows += [
                {"page": name, "line": number, "of": " ".join(place), "here": a, "recomputed": b}
                for a, b in pairs
                if a != b
            ]
        if here != fresh and all(row["page"] != name for row in rows):
            rows.append({"page": name, "of": "the whole file", "here": "other bytes or none"})
    unlike = {*before.items(), *made.record.hashes.items()} - (
        before.items() & made.record.hashes.items()
    )
    paths = sorted({path for path, _ in unlike})
    remarks = [f"{path}: not the file that the site was made from" for path in paths]
    pages = sorted(page.relative_to(site).as_posix() for page in site.rglob("*.html"))
    remarks += [f"{page}: not a page of this site" for page in pages if page not in made.files]
    return rows, remarks, agreeing
