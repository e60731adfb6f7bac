"""The operations and regions of a PyTorch profile (a Chrome trace).

A trace holds nested events: an operator calls another, which launches kernels. Adding them up
counts the same microsecond several times, so an operation is given its self time, without its
children.
"""

import gzip
import json
import zlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.errors import Unreadable
from configs.files import open_regular

LARGEST_TRACE = 1 << 30
HOST = frozenset(["cpu_op", "python_function", "cuda_runtime", "Operator"])
DEVICE = frozenset(["kernel", "gpu_memcpy", "gpu_memset"])
_REGION = "region: "  # the prefix that train/engine/profiler.py writes

Event = Mapping[str, Any]


@dataclass(kw_only=True)
class Spent:
    """The calls of an operation, and the microseconds that they took."""

    calls: int = 0
    us: float = 0.0

    def add(self, us: float) -> None:
        """Add a call."""
        self.calls += 1
        self.us += us


def read_trace(path: Path) -> list[Event]:
    """Return the complete events of a Chrome trace (`.json` or `.json.gz`)."""
    try:
        with open_regular(path, most=LARGEST_TRACE) as file:
            unpacked = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
            tree = json.loads(unpacked.read(LARGEST_TRACE))
    except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
        raise Unreadable(f"{path}: no Chrome trace ({type(error).__name__})") from None
    events = tree.get("traceEvents") if isinstance(tree, dict) else tree
    if not isinstance(events, list):
        raise Unreadable(f"{path}: no Chrome trace (no traceEvents)")
    return [event for event in events if isinstance(event, dict) and _is_complete(event)]


def _is_complete(event: Event) -> bool:
    numbers = (event.get("ts"), event.get("dur"))
    return event.get("ph") == "X" and all(type(number) in (int, float) for number in numbers)


def operations(events: Sequence[Event]) -> dict[tuple[str, str], Spent]:
    """Return the calls and self time of every operation by (`host` or `device`, name)."""
    threads: dict[tuple[str, str, str], list[Event]] = defaultdict(list)
    for event in events:
        category = str(event.get("cat", ""))
        where = "device" if category in DEVICE else "host" if category in HOST else None
        if where:
            threads[where, str(event.get("pid")), str(event.get("tid"))].append(event)
    found: dict[tuple[str, str], Spent] = defaultdict(Spent)
    for (where, _, _), thread in threads.items():
        for name, self_us in _self_times(thread):
            found[where, name].add(self_us)
    return found


def _self_times(thread: Sequence[Event]) -> list[tuple[str, float]]:
    """Return (name, self time in us) of each event of one thread, whose events nest."""
    ordered = sorted(thread, key=lambda event: (event["ts"], -event["dur"]))
    own = [float(event["dur"]) for event in ordered]
    stack: list[int] = []
    for number, event in enumerate(ordered):
        while stack and _end(ordered[stack[-1]]) <= event["ts"]:
            stack.pop()
        if stack:
            inside = min(_end(event), _end(ordered[stack[-1]])) - event["ts"]
            own[stack[-1]] -= max(0.0, inside)
        stack.append(number)
    names = [str(event.get("name", "?")) for event in ordered]
    return list(zip(names, (max(0.0, us) for us in own), strict=True))


def _end(event: Event) -> float:
    return float(event["ts"] + event["dur"])


def operation_rows(
    traces: Sequence[Mapping[tuple[str, str], Spent]], *, top: int
) -> list[dict[str, Any]]:
    """Return the `top` operations of one trace by self time, or of two traces by its change."""
    totals: list[dict[str, float]] = [defaultdict(float) for _ in traces]
    for total, spent in zip(totals, traces, strict=True):
        for (where, _), one in spent.items():
            total[where] += one.us
    rows = []
    for where, name in dict.fromkeys(key for spent in traces for key in spent):
        row: dict[str, Any] = {"where": where, "operation": name}
        labels = [""] if len(traces) == 1 else ["_a", "_b"]
        for label, spent, total in zip(labels, traces, totals, strict=True):
            one = spent.get((where, name), Spent())
            row[f"calls{label}"] = one.calls
            row[f"self_ms{label}"] = one.us / 1e3
            row[f"share{label}"] = one.us / total[where] if total[where] else None
        if len(traces) == 2:
            row["change_ms"] = row["self_ms_b"] - row["self_ms_a"]
        rows.append(row)
    ranked = "self_ms" if len(traces) == 1 else "change_ms"
    return sorted(rows, key=lambda row: (-abs(row[ranked]), row["operation"]))[:top]


def region_rows(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Return each region's calls, its host time, and the device time of its launches.

    Host times include nested events.
    """
    spans = sorted(
        (float(event["ts"]), _end(event), str(event["name"])[len(_REGION) :])
        for event in events
        if event.get("cat") == "user_annotation" and str(event.get("name")).startswith(_REGION)
    )
    host: dict[str, Spent] = defaultdict(Spent)
    for begin, end, name in spans:
        host[name].add(end - begin)
    device = _device_us_by_region(events, spans)
    total = sum(spent.us for spent in host.values())
    rows: list[dict[str, Any]] = [
        {
            "region": name,
            "calls": spent.calls,
            "host_ms": spent.us / 1e3,
            "share": spent.us / total if total else None,
            "device_ms": device[name] / 1e3 if name in device else None,
        }
        for name, spent in host.items()
    ]
    return sorted(rows, key=lambda row: -row["host_ms"])


def _device_us_by_region(
    events: Sequence[Event], spans: Sequence[tuple[float, float, str]]
) -> dict[str, float]:
    """Return device microseconds by the region that was open on the host at the launch."""
    begins = [begin for begin, _, _ in spans]
    launched: dict[Any, str] = {}
    for event in events:
        correlation = _correlation(event)
        if event.get("cat") == "cuda_runtime" and correlation is not None:
            index = bisect_right(begins, event["ts"]) - 1
            if index >= 0 and event["ts"] < spans[index][1]:
                launched[correlation] = spans[index][2]
    spent: dict[str, float] = defaultdict(float)
    for event in events:
        region = launched.get(_correlation(event)) if event.get("cat") in DEVICE else None
        if region:
            spent[region] += event["dur"]
    return spent


def _correlation(event: Event) -> Any:
    arguments = event.get("args")
    return arguments.get("correlation") if isinstance(arguments, Mapping) else None
