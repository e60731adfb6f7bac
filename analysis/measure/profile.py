"""The longest operations of a PyTorch profile, by self time; two profiles side by side.

A trace holds nested events (an operator calls another, which launches kernels). Added up as they
stand they count the same microsecond several times; self time leaves an event's children out.
"""

import gzip
import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.errors import Unreadable

LARGEST_TRACE = 1 << 30
HOST = frozenset(["cpu_op", "python_function", "cuda_runtime", "Operator"])
DEVICE = frozenset(["kernel", "gpu_memcpy", "gpu_memset"])


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One kind of operation in a trace: its calls and its time without that of its children."""

    name: str
    where: str
    calls: int
    self_us: float


def read_trace(path: Path) -> list[dict[str, Any]]:
    """The complete events of a Chrome trace (`.json` or `.json.gz`)."""
    try:
        if path.stat().st_size > LARGEST_TRACE:
            raise Unreadable(f"{path}: too large for a trace")
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rb") as file:
            tree = json.loads(file.read(LARGEST_TRACE))
    except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
        raise Unreadable(f"{path}: no Chrome trace ({type(error).__name__})") from None
    events = tree.get("traceEvents") if isinstance(tree, dict) else tree
    if not isinstance(events, list):
        raise Unreadable(f"{path}: no Chrome trace (no traceEvents)")
    return [event for event in events if isinstance(event, dict) and _is_complete(event)]


def _is_complete(event: Mapping[str, Any]) -> bool:
    numbers = (event.get("ts"), event.get("dur"))
    return event.get("ph") == "X" and all(type(number) in (int, float) for number in numbers)


def operations(events: Iterable[Mapping[str, Any]]) -> list[Operation]:
    """Every operation by self time, the longest first, host and device apart."""
    lanes: dict[tuple[str, str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for event in events:
        category = str(event.get("cat", ""))
        where = "device" if category in DEVICE else "host" if category in HOST else None
        if where:
            lanes[where, str(event.get("pid")), str(event.get("tid"))].append(event)
    spent: dict[tuple[str, str], float] = defaultdict(float)
    calls: dict[tuple[str, str], int] = defaultdict(int)
    for (where, _, _), lane in lanes.items():
        for name, self_us in _self_times(lane):
            spent[where, name] += self_us
            calls[where, name] += 1
    found = [
        Operation(name=name, where=where, calls=calls[where, name], self_us=us)
        for (where, name), us in spent.items()
    ]
    return sorted(found, key=lambda operation: (-operation.self_us, operation.name))


def _self_times(lane: Sequence[Mapping[str, Any]]) -> list[tuple[str, float]]:
    """(name, self time) of each event of one thread, whose events nest."""
    ordered = sorted(lane, key=lambda event: (event["ts"], -event["dur"]))
    own = [float(event["dur"]) for event in ordered]
    stack: list[int] = []
    for number, event in enumerate(ordered):
        while stack and _end(ordered[stack[-1]]) <= event["ts"]:
            stack.pop()
        if stack:
            inside = min(_end(event), _end(ordered[stack[-1]])) - event["ts"]
            own[stack[-1]] -= max(0.0, inside)
        stack.append(number)
    named = [str(event.get("name", "?")) for event in ordered]
    return list(zip(named, (max(0.0, us) for us in own), strict=True))


def _end(event: Mapping[str, Any]) -> float:
    return float(event["ts"] + event["dur"])


def operation_rows(traces: Sequence[list[Operation]], *, top: int) -> list[dict[str, Any]]:
    """The `top` operations of the first trace, or by the change where there are two."""
    tables = [{(o.where, o.name): o for o in operations} for operations in traces]
    totals = [_total(operations) for operations in traces]
    keys = dict.fromkeys(key for table in tables for key in table)
    rows = [_row(key, tables, totals) for key in keys]
    if len(tables) == 2:
        rows.sort(key=lambda row: (-abs(row["change_ms"]), row["operation"]))
    return rows[:top]


def _total(operations: Sequence[Operation]) -> dict[str, float]:
    spent: dict[str, float] = defaultdict(float)
    for operation in operations:
        spent[operation.where] += operation.self_us
    return spent


def _row(
    key: tuple[str, str],
    tables: Sequence[Mapping[tuple[str, str], Operation]],
    totals: Sequence[Mapping[str, float]],
) -> dict[str, Any]:
    where, name = key
    found = [table.get(key) for table in tables]
    self_ms = [one.self_us / 1e3 if one else 0.0 for one in found]
    row: dict[str, Any] = {"where": where, "operation": name}
    labels = [""] if len(tables) == 1 else ["_a", "_b"]
    for label, one, ms, total in zip(labels, found, self_ms, totals, strict=True):
        row[f"calls{label}"] = one.calls if one else 0
        row[f"self_ms{label}"] = ms
        row[f"share{label}"] = ms * 1e3 / total[where] if total.get(where) else None
    if len(tables) == 2:
        row["change_ms"] = self_ms[1] - self_ms[0]
    return row
