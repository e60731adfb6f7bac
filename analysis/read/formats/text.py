"""Read a text log by the candidate that explains most of it."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from analysis.read import assemble
from analysis.read.formats import lines
from analysis.read.formats.mlperf import MLPERF, events_of, facts_of
from analysis.read.formats.place import Candidate, placed_rows
from analysis.read.run_log import RunLog
from analysis.read.text.fields import kinds_of
from analysis.read.text.infer import Inferred, alone, infer
from analysis.read.text.judge import Judged, judge
from analysis.read.text.patterns import Format
from analysis.read.text.pieces import Piece, pieces, sample
from analysis.read.text.scan import Found, scan
from analysis.read.text.teach import propose

# Lines that belong to a record are as many as those that open it, within this share.
AS_MANY = 0.2
MOST_SIDES = 12
# A line with one of these alone in its log is a configuration.
_CONFIG = re.compile(
    r"(?i:namespace\(|\bargs?\b|config|hyper-?param|(?<![a-z])(?:seed|n(?:um)?_?workers|dropout"
    r"|momentum|weight_?decay|batch_?size|hidden|layers|gamma|scheduler|optim|max_|n_|num_))"
)
BESIDE = 2.1
LEAST_OPENING = 12
TRIED = 3


def read_text(path: Path, *, name: str, own: tuple[Format, ...] = ()) -> list[RunLog]:
    """Return the runs in a text file by the best candidate; a user's `own` is the only one."""
    remarks: tuple[str, ...] = ()
    some = sample(path)
    if own:
        found = [Candidate(key="own", format=own[0])]
    else:
        found, remarks = candidates(some)
    for candidate in found[:TRIED]:
        logs = _read(path, candidate, name=name, openings=_openings(some, candidate))
        if logs:
            told = (f"{logs[0].name}: {remark}" for remark in remarks)
            return [replace(logs[0], remarks=(*told, *logs[0].remarks)), *logs[1:]]
    return []


def candidates(some: Sequence[Piece]) -> tuple[list[Candidate], tuple[str, ...]]:
    """Return the candidates for a sample of a file, the best first, and remarks on the others."""
    numbered = dict(_numbered_lines(some))
    kinds = kinds_of(numbered.items())
    inferred = infer(kinds, lines.DIALECTS, numbered)
    tried = [
        Candidate(
            key=known.name,
            format=known,
            sides=_beside_bars(inferred) if known is lines.BARS else (),
        )
        for known in lines.FORMATS
    ]
    for main in inferred:
        # One line is enough if it names a step and a loss: a training that has just begun.
        own = {numbered[line] for line in main.kind.lines}
        is_first = main.has_loss and main.axis == "step" and not any(map(_CONFIG.search, own))
        if main.has_axis and (len(own) > 1 or is_first):
            stages = _stages(main, inferred)
            sides = _sides(main, [other for other in inferred if other not in stages])
            tried.append(
                Candidate(
                    key=main.key, format=main.format, inferred=main, sides=sides, stages=stages
                )
            )
    found = scan(some, list({key: known for one in tried for key, known in one.formats}.items()))
    judged: list[tuple[Judged, Candidate]] = []
    for one in tried:
        placed = placed_rows(one, found)
        if placed is not None:
            matched = sum(found.matched.get(key, 0) for key, _ in one.formats)
            verdict = judge(one.format, placed, matched=matched, numbered=len(numbered))
            has_loss = one.inferred is not None and one.inferred.has_loss
            if verdict.score and not has_loss and any(side.has_loss for side in one.sides):
                # A loss in the line of its step is the whole; one in a line beside may be a part.
                verdict = replace(verdict, score=max(verdict.score - BESIDE, 0.1))
            judged.append((verdict, replace(one, heads=found.heads(key for key, _ in one.formats))))
    judged = sorted((pair for pair in judged if pair[0].score > 0), key=lambda pair: -pair[0].score)
    return [one for _, one in judged], _disagreement(judged)


def _disagreement(judged: Sequence[tuple[Judged, Candidate]]) -> tuple[str, ...]:
    """Return a remark on the next best candidate if it has lines of its own."""
    if len(judged) < 2 or judged[0][1].inferred is None:
        return ()
    best = judged[0][1]
    seen = set(judged[0][1].inferred.kind.lines)
    for verdict, one in judged[1:]:
        other = one.inferred
        if verdict.rows < 2 or (other and not seen.isdisjoint(other.kind.lines)):
            continue
        last = judged[0][0].last
        if one.format is lines.BARS and verdict.axis == judged[0][0].axis and verdict.last > last:
            return (
                f"bars go on to {verdict.axis} {verdict.last:,}: the last loss may be later than "
                "the one shown",
            )
        if other is None:
            continue
        if other.has_loss and other not in (*best.sides, *best.stages):
            shape = " ".join(field.name for field in other.kind.fields[:4])
            return (f"lines of another kind are not read: {shape!r} ...",)
    return ()


def _numbered_lines(some: Sequence[Piece]) -> list[tuple[int, str]]:
    found = []
    number = 0
    for piece in some:
        for line in piece.text.split(b"\n"):
            number += 1
            # A damaged entry of MLPerf is no other line: its names stand for several axes.
            if re.search(rb"\d", line[:2000]) and b":::MLL" not in line:
                found.append((number, _without_bar(line[:2000]).decode("latin-1")))
    return found


def _without_bar(line: bytes) -> bytes:
    """Return what stands in a line after a bar, and the values of one that evaluates."""
    bar = lines.BARS.pattern.match(b"\n" + line)
    if bar is None:
        return line
    rest = line[bar.end() - 1 :]
    before = bar["before"] or b""
    return rest if not lines.NOT_TRAINING.search(before) else before + bar["pairs"] + rest


def _stages(main: Inferred, every: Sequence[Inferred]) -> tuple[Inferred, ...]:
    """Return kinds with the same axis and a loss that stand before or after all lines of a kind."""
    first, last = min(main.kind.lines), max(main.kind.lines)
    return tuple(
        one for one in every
        if one.has_axis and one.has_loss and main.has_loss and len(one.kind.lines) > 1
        and one.axis == main.axis
        and (min(one.kind.lines) > last or max(one.kind.lines) < first)
    )[:3]  # fmt: skip


def _sides(main: Inferred, every: Sequence[Inferred]) -> tuple[Inferred, ...]:
    """Return what stands beside the lines of a kind: the rest of its records, and evaluations."""
    found: list[Inferred] = []
    count = len(main.kind.rows)
    for one in every:
        if one.kind is main.kind or any(one.kind is other.kind for other in found):
            continue
        is_part = not one.has_axis or (one.axis == "sample" and main.axis == "step")
        is_of_record = is_part and abs(len(one.kind.rows) - count) <= max(AS_MANY * count, 1)
        if (is_of_record and not main.has_loss) or one.has_evaluation:
            found.append(one)
    found.sort(key=lambda one: (not one.has_loss, not one.has_evaluation))
    if not main.has_loss and not any(one.has_loss for one in found):
        others = [one for one in map(alone, found) if one.has_loss]
        found = [*others, *found] if len(others) == 1 else found
    return tuple(found[:MOST_SIDES])


def _beside_bars(every: Sequence[Inferred]) -> tuple[Inferred, ...]:
    """Return the lines between bars that evaluate or have the loss of an epoch."""
    found: list[Inferred] = []
    for one in every:
        is_of_epoch = one.has_loss and not one.has_step
        if (one.has_evaluation or is_of_epoch) and one.kind not in [a.kind for a in found]:
            found.append(one)
    found.sort(key=lambda one: (not one.has_loss, not one.has_evaluation))
    return tuple(found[:MOST_SIDES])


def _openings(some: Sequence[Piece], candidate: Candidate) -> tuple[bytes, ...]:
    """Return parts of up to three lines that stand once before the first record of a log."""
    found = scan(some[:1], candidate.formats).rows(candidate.key)
    if found is None:
        return ()
    head = some[0].text[: int(found["place"].min())]
    parts = (max(re.split(rb"\d+", line), key=len).strip() for line in head.split(b"\n"))
    once = (part for part in parts if len(part) >= LEAST_OPENING and head.count(part) == 1)
    return tuple(dict.fromkeys(once))[:3]


def _sessions(found: Found, runs: Sequence[RunLog]) -> list[str]:
    """Return a remark if the lines before the first record return more often than the runs begin.

    A resume that goes on where the last session ended has no falling step.
    """
    counts = set(found.openings.values())
    shown = sum(log.attempts for log in runs)
    again = min(counts, default=0)
    steps = sum(map(len, runs))
    if len(counts) != 1 or again <= shown or (2 * again > steps and steps >= again):
        return []
    return [f"its opening lines stand in it {again} times: it may be {again} sessions"]


def _read(
    path: Path, candidate: Candidate, *, name: str, openings: tuple[bytes, ...] = ()
) -> list[RunLog]:
    found = scan(pieces(path), candidate.formats, heads=candidate.heads, openings=openings)
    placed = placed_rows(candidate, found)
    if placed is None or not len(placed.rows):
        return []
    known = candidate.format
    logs = assemble.assemble(placed, path=path, name=name, kind=known.name)
    counts = (sum(found.matched.values()), found.lines)
    if known is MLPERF and len(logs) == 1:
        rows = found.rows(candidate.key)
        events = (*events_of(rows), *logs[0].events) if rows is not None else logs[0].events
        evaluations = placed.evaluations
        logs = [replace(logs[0], facts=facts_of(path), events=events, evaluations=evaluations)]
    remarks = [*placed.remarks, *_sessions(found, logs)]
    if placed.axis != "step":
        what = "units that the log does not name" if placed.axis == "unit" else f"{placed.axis}s"
        remarks.append(f"the axis counts {what}")
    if candidate.key == "own":
        remarks.append(f"the pattern reads {counts[0]:,} of {counts[1]:,} lines")
    return [
        replace(
            log,
            lines_read=counts,
            remarks=(*(f"{log.name}: {remark}" for remark in remarks), *log.remarks),
        )
        for log in logs
    ]


def what_is_unread(path: Path) -> str:
    """Return a sentence on a text file without a run: its most repeated line, and a pattern."""
    some = sample(path)
    numbered = dict(_numbered_lines(some))
    kinds = kinds_of(numbered.items())
    proposal = propose(kinds, numbered)
    if proposal is not None:
        return (
            f"text of an unknown format. {proposal.lines} lines are like {proposal.shape!r}; this "
            f"reads {proposal.read} of them: --pattern {shlex.quote(proposal.pattern)}"
        )
    if not kinds:
        return "text of an unknown format, without a number"
    kind = kinds[0]
    line = numbered[kind.lines[len(kind.lines) // 2]].strip()[:160]
    return (
        f"text of an unknown format: the commonest line with a number is {line!r} "
        f"({len(kind.lines)} times), and no number in it rises steadily. If it is a log of a "
        "training, name its numbers: --pattern 'step (?P<step>\\d+).*?loss (?P<loss>\\S+)'"
    )
