"""Plant truth, ask the analysis commands, and write how often they are right.

python -m benchmarks.analysis_coverage [--quick] [--only TEXT] [--seed N] [--page]
"""

import argparse
import sys
from pathlib import Path

from benchmarks.analysis_coverage import detectors, figures, losses, rates, speedups, studies
from benchmarks.analysis_coverage.harness import Result, run_all
from benchmarks.analysis_coverage.page import (
    line_of,
    page,
    read_results,
    write_results,
)
from benchmarks.analysis_coverage.scenario import Scenario

MODULES = (rates, speedups, losses, studies, figures, detectors)
PAGE = Path("docs/measurements/analysis-coverage.md")
BEFORE = Path(__file__).with_name("before.jsonl")
QUICK = 0.2


def scenarios() -> list[Scenario]:
    """Return all scenarios, in the order of the page."""
    return [scenario for module in MODULES for scenario in module.scenarios()]


def main() -> int:
    """Run the scenarios; return 1 if one of them fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a fifth of the draws, in two minutes")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="TEXT",
        help="scenarios with this in their name",
    )
    parser.add_argument("--seed", type=int, default=0, help="another seed makes other draws")
    parser.add_argument("--out", type=Path, help="write the results here, a JSON line each")
    parser.add_argument("--page", action="store_true", help=f"write {PAGE}")
    options = parser.parse_args()
    chosen = [
        one
        for one in scenarios()
        if not options.only or any(text in f"{one.topic}: {one.name}" for text in options.only)
    ]
    if not chosen:
        parser.error(f"no scenario has {' or '.join(options.only)} in its name")
    before = (
        {(one.topic, one.scenario): one for one in read_results(BEFORE)} if BEFORE.exists() else {}
    )

    def told(result: Result) -> None:
        known = before.get((result.topic, result.scenario))
        print(f"{result.topic}: {line_of(result, known)}", flush=True)
        for example in result.tally.examples if result.tally.failures() else ():
            print(f"    {example}", file=sys.stderr)

    share = QUICK if options.quick else 1.0
    results = run_all(chosen, share=share, seed=options.seed, told=told)
    if options.out:
        write_results(options.out, results)
    if options.page:
        PAGE.write_text(page(results, before, seed=options.seed))
    failed = [one for one in results if one.tally.failures()]
    print(f"{len(failed)} of {len(results)} scenarios fail")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
