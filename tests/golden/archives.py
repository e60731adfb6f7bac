"""The JSON of the commands that compare runs, for every archive of docs/measurements."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analysis.__main__ import main as analysis
from runs.folder import ROOT
from tests.golden.surroundings import printed, rounded

ARCHIVES = sorted((ROOT / "docs" / "measurements").glob("*.tar.xz"))
COMMANDS = ("speed", "loss", "cells", "runs", "cost")


def text(archive: Path) -> str:
    """Return a section for each command on an archive, and for each row of its JSON."""
    found = "".join(part for command in COMMANDS for part in _sections(command, archive))
    # The folder to which an archive is unpacked has a random name.
    return re.sub(r"/[^\s\"]*/ditbench-\w+/", "UNPACKED/", found)


def _sections(command: str, archive: Path) -> Iterator[str]:
    code, out, err = printed(analysis, command, str(archive), "--json")
    found = rounded(json.loads(out or "{}"))
    found = found if isinstance(found, dict) else {"": found}
    tables = {name: rows for name, rows in found.items() if isinstance(rows, list)}
    rest = {name: value for name, value in found.items() if name not in tables}
    yield f"=== {command}\nexit {code}\n{err}{_lines(rest)}"
    for table, rows in tables.items():
        seen = Counter[str]()
        for row in rows:
            # The first column says what the row is about.
            about = " ".join(filter(None, [command, table, str(next(iter(row.values())))]))
            seen[about] += 1
            number = f" ({seen[about]})" if seen[about] > 1 else ""
            yield f"=== {about}{number}\n{_lines(row)}"


def _lines(fields: dict[str, Any]) -> str:
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in fields.items())
