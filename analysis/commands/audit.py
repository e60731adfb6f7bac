"""`audit`: recompute claims about runs."""

import argparse
from pathlib import Path

from analysis.audit.claims import judge, read_claims
from analysis.table import put

EXAMPLE = """ditbench audit logs/claims.yaml

a claim:
  - text: compiling makes a step 17 % faster
    quantity: speedup
    runs: [eager-1120, compiled-1120]
    value: 17 %"""


def run(args: argparse.Namespace) -> int:
    """Print the verdicts; return 1 if a claim disagrees."""
    found = [judge(claim) for path in map(Path, args.paths) for claim in read_claims(path)]
    put(found, args, json={"claims": found})
    return 1 if any(row["verdict"] == "disagrees" for row in found) else 0
