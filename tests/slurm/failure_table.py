"""Print the results of the failure matrix on the real Slurm as a table.

python -m pytest tests/slurm/test_matrix.py -o junit_family=xunit1 --junitxml=FILE
python -m tests.slurm.failure_table FILE [FILE ...]    (the last file with a case counts)
"""

import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable


def table(reports: Iterable[str]) -> str:
    """Return the Markdown table of JUnit reports."""
    cases = {
        case.get("name", ""): case for file in reports for case in ET.parse(file).iter("testcase")
    }
    rows = [
        "| ranks | end | how its attempts ended | steps done twice | |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*rows, *(_row(name, case) for name, case in cases.items())])


def _row(name: str, case: ET.Element) -> str:
    found = re.fullmatch(r"test_(.+)\[(\d) ranks?-?(.*)\]", name)
    assert found is not None, name
    end = found[1].replace("_", " ") + (f": {found[3]}" if found[3] else "")
    properties = {p.get("name"): p.get("value") for p in case.iter("property")}
    failed = any(case.find(word) is not None for word in ("failure", "error", "skipped"))
    verdict = "NOT passed" if failed else "passed"
    ended, lost = (properties.get(name, "") for name in ("ended", "lost"))
    return f"| {found[2]} | {end} | {ended} | {lost} | {verdict} |"


if __name__ == "__main__":
    print(table(sys.argv[1:]))
