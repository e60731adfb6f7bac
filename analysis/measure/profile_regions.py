"""The parts of a training step in a trace, and the calls in it that wait for the device."""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.measure.profile import DEVICE

Events = Sequence[Mapping[str, Any]]

_REGION = "region: "  # as train/engine/profiler.py names them
_COMMUNICATION = re.compile(r"nccl|c10d::|gloo:")
_WAITING = re.compile(
    r"cuda(Device|Stream|Event)Synchronize|aten::(item|_local_scalar_dense|nonzero)|cudaMemcpy"
)


def region_rows(events: Events) -> list[dict[str, Any]]:
    """Each region's calls, its host time, and the device time of what it launched.

    Host times are whole, what lies inside a region included; communication overlaps the regions
    that it is called from, and is no part of the shares.
    """
    spans = sorted(
        (float(event["ts"]), float(event["ts"] + event["dur"]), str(event["name"])[len(_REGION) :])
        for event in events
        if event.get("cat") == "user_annotation" and str(event.get("name")).startswith(_REGION)
    )
    host: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)
    for begin, end, name in spans:
        host[name] += end - begin
        calls[name] += 1
    device = _launched(events, spans)
    total = sum(host.values())
    rows = [_row(name, calls[name], host[name], device.get(name), total) for name in host]
    rows.sort(key=lambda row: -row["host_ms"])
    if communication := _communication(events):
        rows.append(communication)
    return rows


def _row(
    name: str, calls: int, host_us: float, device_us: float | None, total_us: float
) -> dict[str, Any]:
    return {
        "region": name,
        "calls": calls,
        "host_ms": host_us / 1e3,
        "share": host_us / total_us if total_us else None,
        "device_ms": None if device_us is None else device_us / 1e3,
    }


def _launched(events: Events, spans: Sequence[tuple[float, float, str]]) -> dict[str, float]:
    """Device microseconds by the region that was open on the host at the launch."""
    begins = [begin for begin, _, _ in spans]
    launched: dict[Any, str] = {}
    for event in events:
        correlation = _correlation(event)
        if event.get("cat") == "cuda_runtime" and correlation is not None:
            place = bisect_right(begins, event["ts"]) - 1
            if place >= 0 and event["ts"] < spans[place][1]:
                launched[correlation] = spans[place][2]
    spent: dict[str, float] = defaultdict(float)
    for event in events:
        region = launched.get(_correlation(event)) if event.get("cat") in DEVICE else None
        if region:
            spent[region] += event["dur"]
    return spent


def _correlation(event: Mapping[str, Any]) -> Any:
    arguments = event.get("args")
    return arguments.get("correlation") if isinstance(arguments, Mapping) else None


def _communication(events: Events) -> dict[str, Any] | None:
    """The outermost calls that send something, and the kernels that do."""
    found: dict[str, list[Mapping[str, Any]]] = {"host": [], "device": []}
    for event in events:
        if _COMMUNICATION.search(str(event.get("name"))):
            category = event.get("cat")
            if category in DEVICE:
                found["device"].append(event)
            elif category == "cpu_op":
                found["host"].append(event)
    if not found["host"] and not found["device"]:
        return None
    device = sum(float(event["dur"]) for event in found["device"])
    return {
        "region": "communication",
        "calls": len(found["device"] or found["host"]),
        "host_ms": _covered(found["host"]) / 1e3,
        "share": None,
        "device_ms": device / 1e3 if found["device"] else None,
    }


def _covered(events: Events) -> float:
    """Microseconds that at least one of the events covers, each thread for itself."""
    total, ends = 0.0, dict[Any, float]()
    for event in sorted(events, key=lambda event: event["ts"]):
        thread, end = (event.get("pid"), event.get("tid")), event["ts"] + event["dur"]
        begin = max(event["ts"], ends.get(thread, event["ts"]))
        total += max(0.0, end - begin)
        ends[thread] = max(end, begin)
    return total


def waiting_rows(events: Events) -> list[dict[str, Any]]:
    """Calls that make the host wait for the device, the longest first."""
    calls: dict[str, int] = defaultdict(int)
    spent: dict[str, float] = defaultdict(float)
    for event in events:
        name = str(event.get("name"))
        if event.get("cat") in ("cuda_runtime", "cpu_op") and _WAITING.match(name):
            calls[name] += 1
            spent[name] += event["dur"]
    rows = [{"call": name, "calls": calls[name], "ms": spent[name] / 1e3} for name in calls]
    return sorted(rows, key=lambda row: (-row["ms"], row["call"]))
