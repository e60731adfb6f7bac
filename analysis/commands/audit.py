"""`audit`: recompute claims about runs, and tables in Markdown pages."""

import argparse
from pathlib import Path

from analysis.audit.claims import judge, read_claims
from analysis.audit.markdown_table import judge_markdown
from analysis.table import put
from configs.errors import Unreadable

EXAMPLE = """ditbench audit logs/claims.yaml
  ditbench audit README.md

a claim:
  - text: compiling makes a step 17 % faster
    quantity: speedup
    runs: [eager-1120, compiled-1120]
    value: 17 %"""


def run(args: argparse.Namespace) -> int:
    """Print the verdicts; return 1 if a claim disagrees."""
    judged = []
    for path in map(Path, args.paths):
        if not path.is_file():
            raise Unreadable(f"{path}: no such file with claims")
        if path.suffix.lower() in (".md", ".markdown"):
            judged += judge_markdown(path)
        else:
            judged += [judge(claim) for claim in read_claims(path)]
    put(judged, args, json={"claims": judged})
    return 1 if any(row["verdict"] == "disagrees" for row in judged) else 0
