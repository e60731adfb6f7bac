"""`audit`: recompute claims about runs, and tables in Markdown pages."""

import argparse
from pathlib import Path

from analysis.audit.markdown_table import judged
from analysis.table import put

EXAMPLE = """ditbench audit logs/claims.yaml
  ditbench audit README.md

a claim:
  - text: compiling makes a step 17 % faster
    quantity: speedup
    runs: [eager-1120, compiled-1120]
    value: 17 %"""


def run(args: argparse.Namespace) -> int:
    """Print the verdicts; return 1 if a claim disagrees."""
    found = [row for path in map(Path, args.paths) for row in judged(path)]
    put(found, args, json={"claims": found})
    return 1 if any(row["verdict"] == "disagrees" for row in found) else 0
