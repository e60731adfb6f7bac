"""`audit`: claims against the runs, or the table, that they are about."""

import argparse
from pathlib import Path

from analysis.table import put

DOC = "recompute claims: a YAML list of text, quantity, runs and value, or a markdown table"
EXAMPLE = """python -m analysis audit logs/claims.yaml
  python -m analysis audit README.md

a claim:
  - text: compiling makes a step 17 % faster
    quantity: speedup
    runs: [eager-1120, compiled-1120]
    value: 17 %"""


def options(_: argparse.ArgumentParser) -> None:
    """No options of its own."""


def act(asked: argparse.Namespace) -> int:
    """Print the verdicts; 1 where a claim disagrees."""
    from analysis.audit import as_json, judge, read_claims
    from analysis.markdown_audit import judge_markdown
    from analysis.read import Unreadable

    judged = []
    for path in map(Path, asked.paths):
        if not path.is_file():
            raise Unreadable(f"{path}: no such file")
        if path.suffix.lower() in (".md", ".markdown"):
            judged += judge_markdown(path)
        else:
            judged += [judge(claim) for claim in read_claims(path)]
    put([one.row() for one in judged], asked, json=as_json(judged))
    return 1 if any(one.verdict == "disagrees" for one in judged) else 0
