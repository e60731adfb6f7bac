"""The matrix of ends as a table: what each became on the real Slurm.

python -m pytest tests/slurm/test_matrix.py -o junit_family=xunit1 --junitxml=FILE
python -m tests.slurm.outcomes FILE
"""

import re
import sys
import xml.etree.ElementTree as ET


def table(junit: str) -> str:
    """Rows of Markdown of a report in JUnit's format."""
    rows = [
        "| ranks | end | how its attempts ended | steps done twice | |",
        "|---|---|---|---|---|",
    ]
    for case in ET.parse(junit).iter("testcase"):
        found = re.fullmatch(r"test_(.+)\[(\d) ranks?-?(.*)\]", case.get("name", ""))
        if found is None:
            continue
        told = {p.get("name"): p.get("value") for p in case.iter("property")}
        end = found[1].replace("_", " ") + (f": {found[3]}" if found[3] else "")
        passed = case.find("failure") is None and case.find("error") is None
        verdict = "passed" if passed and case.find("skipped") is None else "NOT passed"
        rows.append(
            f"| {found[2]} | {end} | {told.get('ended', '')} | {told.get('lost', '')} | {verdict} |"
        )
    return "\n".join(rows)


if __name__ == "__main__":
    print(table(sys.argv[1]))
