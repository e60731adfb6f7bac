"""Run tests with pytest and print each result as it comes, as one JSON object a line.

    python -m benchmarks.gpu.tests PATH ...

The names in the JSON list of the environment variable TESTS_PASSED are left out.
"""

import json
import os
import sys
from typing import Any

import pytest

from benchmarks.gpu.pieces import TAIL


class Reporter:
    """Prints the outcome of each test: seconds if it passed, else why not."""

    def __init__(self, passed: set[str]) -> None:
        self._passed = passed
        # The tests' own output is captured.
        self._out = os.fdopen(os.dup(sys.stdout.fileno()), "w")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out what has passed."""
        items[:] = [item for item in items if item.nodeid not in self._passed]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Print a file that cannot be collected."""
        if report.outcome != "passed":
            self._put_bad(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print the outcome once: of the call, or of a set-up or tear-down that went wrong."""
        if report.when == "call" and report.outcome == "passed":
            self._put(name=report.nodeid, seconds=round(report.duration, 1))
        elif report.outcome != "passed":
            self._put_bad(report)

    def _put_bad(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        said: Any = report.longrepr
        if isinstance(said, tuple):  # of a skip: file, line, reason
            reason = str(said[2]).removeprefix("Skipped: ")
            self._put(name=report.nodeid, **{report.outcome: reason})
            return
        lines = str(said).strip().splitlines() or ["no reason given"]
        self._put(name=report.nodeid, failed=lines[-1], tail="\n".join(lines)[-TAIL:])

    def _put(self, **values: object) -> None:
        # pytest's own line of dots may be unfinished.
        print("\n" + json.dumps(values), file=self._out, flush=True)


if __name__ == "__main__":
    reporter = Reporter(set(json.loads(os.environ.get("TESTS_PASSED", "[]"))))
    arguments = ["-m", "gpu", "-q", "-rA", "-p", "no:cacheprovider", *sys.argv[1:]]
    status = pytest.main(arguments, plugins=[reporter])
    # That tests failed is a result; that none is left is one, too.
    known = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
    sys.exit(0 if status in known else status)
