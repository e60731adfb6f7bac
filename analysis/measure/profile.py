"""The operations, regions and synchronizing calls of a PyTorch profile (a Chrome trace).

A trace holds nested events: an operator calls another, which launches kernels. Adding them up
counts the same microsecond several times, so an operation is given its self time, without its
children.
"""

import gzip
import json
import re
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
_COMMUNICATION = re.compile(r"nccl|c10d::|gloo:")
_SYNCHRONIZING = re.compile(
    r"cuda(Device|Stream|Event)Synchronize|aten::(item|_local_scalar_dense|nonzero)|cudaMemcpy"
)

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

    Host times include nested events. Communication overlaps the regions that call it, so it has
    no share.
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
    rows.sort(key=lambda row: -row["host_ms"])
    if communication := _communication(events):
        rows.append(communication)
    return rows


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


def _communication(events: Sequence[Event]) -> dict[str, Any] | None:
    """Return the row of communication: outermost host calls and device kernels."""
    found = [event for event in events if _COMMUNICATION.search(str(event.get("name")))]
    device = [event for event in found if event.get("cat") in DEVICE]
    host = [event for event in found if event.get("cat") == "cpu_op"]
    if not host and not device:
        return None
    return {
        "region": "communication",
        "calls": len(device or host),
        "host_ms": _covered_us(host) / 1e3,
        "share": None,
        "device_ms": sum(float(event["dur"]) for event in device) / 1e3 if device else None,
    }


def _covered_us(events: Sequence[Event]) -> float:
    """Return the microseconds that at least one event covers, summed over threads."""
    total, ends = 0.0, dict[Any, float]()
    for event in sorted(events, key=lambda event: event["ts"]):
        thread, end = (event.get("pid"), event.get("tid")), event["ts"] + event["dur"]
        begin = max(event["ts"], ends.get(thread, event["ts"]))
        total += max(0.0, end - begin)
        ends[thread] = max(end, begin)
    return total


def waiting_rows(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Return the calls that make the host wait for the device, the longest first."""
    found: dict[str, Spent] = defaultdict(Spent)
    for event in events:
        name = str(event.get("name"))
        if event.get("cat") in ("cuda_runtime", "cpu_op") and _SYNCHRONIZING.match(name):
            found[name].add(event["dur"])
    rows = [{"call": name, "calls": one.calls, "ms": one.us / 1e3} for name, one in found.items()]
    return sorted(rows, key=lambda row: (-row["ms"], row["call"]))
