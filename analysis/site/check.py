"""Compare the numbers of a site with those that its sources give now."""

import re
from itertools import zip_longest
from pathlib import Path
from typing import Any

from analysis.site.build import build, read_record

_LONGEST_PLACE = 60


def check(site: Path) -> tuple[list[dict[str, Any]], list[str], int]:
    """Return a row per number or word that differs, remarks on sources, and how many agree.

    The pages are made again from the sources of the record, so every number is recomputed. Raise
    `Unreadable` if the record or a source is missing.
    """
    before, made = read_record(site).hashes, build(read_record(site), site)
    rows: list[dict[str, Any]] = []
    compared = 0
    for name in (name for name in made.files if name.endswith(".html")):
        file = site / name
        here = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
        fresh = made.files[name].decode()
        for number, lines in enumerate(zip_longest(here.split("\n"), fresh.split("\n")), start=1):
            place = re.sub("<[^>]*>", " ", lines[1] or lines[0] or "")[:_LONGEST_PLACE].split()
            pairs = list(zip_longest(*(re.split(r'[<>,\s"]+', line or "") for line in lines)))
            compared += len(pairs)
            rows += [
                {"page": name, "line": number, "of": " ".join(place), "here": a, "recomputed": b}
                for a, b in pairs
                if a != b
            ]
    unlike = {*before.items(), *made.record.hashes.items()} - (
        before.items() & made.record.hashes.items()
    )
    paths = sorted({path for path, _ in unlike})
    remarks = [f"{path}: not the file that the site was made from" for path in paths]
    return rows, remarks, compared - len(rows)
