"""The results as a Markdown page: a line per topic, a line per scenario, and what failed."""

from collections.abc import Sequence

from benchmarks.analysis_coverage.harness import Result, Share, Tally

HEAD = """# How often the analysis is right

`python -m benchmarks.analysis_coverage --page` plants a truth in run folders, studies and logs of
other trainers, asks the commands for their JSON, counts, and writes this page.

* **coverage**: share of the 95 % intervals that hold the truth, of those given. Bar: 93 %.
* **given**: share of rows with an interval. **silent**: share of rows without a claim.
* **false**: share of tables (calls) with at least one verdict that is not true. Bar: 6 %.
* **found of best**: share of planted differences (or of figures that the data determine) that the
  command gives, and that the best test gives, which knows the class. Bar: 10 points less.

In brackets is the 95 % interval of a share (Clopper and Pearson). A scenario fails if this interval
excludes the bar.
"""
TOPIC_COLUMNS = ("topic", "scenarios", "coverage", "false", "found of best", "fail")
COLUMNS = (
    "scenario", "draws", "coverage", "given", "silent", "false", "found of best", "verdict",
)  # fmt: skip


def page(results: Sequence[Result], *, seed: int) -> str:
    """Return the page of all results."""
    topics: dict[str, list[Result]] = {}
    for result in results:
        topics.setdefault(result.topic, []).append(result)
    minutes = sum(result.tally.seconds for result in results) / 60
    parts = [
        HEAD,
        f"{len(results)} scenarios, seed {seed}, {minutes:.0f} minutes of a processor: "
        f"**{_failed(results)} fail**.\n",
        _head(TOPIC_COLUMNS),
    ]
    parts += [_topic_line(topic, found) for topic, found in topics.items()]
    for topic, found in topics.items():
        parts += [f"\n## {topic[0].upper() + topic[1:]}\n", _head(COLUMNS)]
        parts += [line_of(one) for one in found]
        parts += [f"\n{one.scenario}: {one.note}." for one in found if one.note]
    return "\n".join(parts) + "\n"


def line_of(result: Result) -> str:
    """Return the row of a scenario."""
    tally = result.tally
    cells = [
        result.scenario,
        str(tally.tables),
        _percent(tally.coverage, brackets=True),
        _percent(Share(count=tally.given, of=tally.rows)),
        _percent(Share(count=tally.silent + tally.refused, of=tally.rows)),
        _percent(tally.false, brackets=True),
        _power(tally),
        f"**{', '.join(tally.failures())}**" if tally.failures() else "pass",
    ]
    return "| " + " | ".join(cells) + " |"


def _topic_line(topic: str, found: Sequence[Result]) -> str:
    """Return the row of a topic: its scenarios pooled."""
    whole = Tally()
    for result in found:
        whole.add(result.tally)
    cells = [
        topic,
        str(len(found)),
        _percent(whole.coverage),
        _percent(whole.false),
        _power(whole),
        str(_failed(found)),
    ]
    return "| " + " | ".join(cells) + " |"


def _failed(results: Sequence[Result]) -> int:
    return sum(bool(result.tally.failures()) for result in results)


def _percent(share: Share, *, brackets: bool = False) -> str:
    """Return a share in percent, with its interval if asked for."""
    if share.value is None:
        return ""
    ends = f" [{100 * share.low:.0f}, {100 * share.high:.0f}]" if brackets else ""
    return f"{100 * share.value:.1f}{ends}"


def _power(tally: Tally) -> str:
    """Return what was found of what the best test finds."""
    if not tally.planted:
        return ""
    return f"{_percent(tally.power)} of {100 * tally.oracle / tally.planted:.1f}"


def _head(columns: Sequence[str]) -> str:
    return "| " + " | ".join(columns) + " |\n|" + "---|" * len(columns)
