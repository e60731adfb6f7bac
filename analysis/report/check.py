"""Compare the numbers of a page with those that its sources give now."""

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
