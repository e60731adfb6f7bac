"""Plant truth, ask the analysis commands, and write how often they are right.

python -m benchmarks.analysis_coverage [--quick] [--only TEXT] [--seed N] [--page]
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.analysis_coverage import (
    archives,
    detectors,
    drawn,
    figures,
    losses,
    rates,
    speedups,
    studies,
)
from benchmarks.analysis_coverage.harness import Result, processes_agree, run_scenario
from benchmarks.analysis_coverage.page import line_of, page
from benchmarks.analysis_coverage.scenario import Scenario

MODULES = (rates, speedups, losses, studies, figures, detectors)
PAGE = Path("docs/measurements/analysis-coverage.md")
QUICK = 0.14


def scenarios(seed: int = 0) -> list[Scenario]:
    """Return all scenarios, in the order of the page."""
    fixed = [scenario for module in MODULES for scenario in module.scenarios()]
    return fixed + drawn.scenarios(seed)


def results(is_chosen: Callable[[str], bool], *, share: float, seed: int) -> Iterator[Result]:
    """Yield the results of the scenarios that are chosen by topic and name."""
    known = scenarios(seed)
    for one in known:
        if is_chosen(f"{one.topic}: {one.name}"):
            yield run_scenario(one, share=share, seed=seed)
    if is_chosen("shipped archives"):
        yield from archives.results()
    if is_chosen("real processes"):
        yield processes_agree(known, seed=seed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the scenarios; return 1 if one of them fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a seventh of the draws")
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="those whose name has this"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="another seed makes other draws, and other parameters of the last scenarios",
    )
    parser.add_argument("--out", type=Path, help="also write each result as a line of JSON")
    parser.add_argument("--page", action="store_true", help=f"write {PAGE}")
    options = parser.parse_args(arguments)
    found = []
    share = QUICK if options.quick else 1.0
    for result in results(
        lambda name: not options.only or any(text in name for text in options.only),
        share=share,
        seed=options.seed,
    ):
        found.append(result)
        print(f"{result.topic}: {line_of(result)}", flush=True)
        for example in result.tally.examples if result.tally.failures() else ():
            print(f"    {example}", file=sys.stderr)
    if options.out:
        options.out.write_text("".join(result.to_json() + "\n" for result in found))
    if options.page:
        PAGE.write_text(page(found, seed=options.seed))
    failed = sum(bool(result.tally.failures()) for result in found)
    print(f"{failed} of {len(found)} scenarios fail")
    return 1 if failed or not found else 0


if __name__ == "__main__":
    sys.exit(main())
