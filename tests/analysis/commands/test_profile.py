"""`profile` counts every microsecond once."""

import gzip
import json

import pytest

from analysis.__main__ import main

EVENTS = [
    {"ph": "X", "cat": "cpu_op", "name": "aten::linear", "ts": 0, "dur": 100, "pid": 1, "tid": 1},
    {"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "ts": 10, "dur": 80, "pid": 1, "tid": 1},
    {"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "ts": 100, "dur": 50, "pid": 1, "tid": 1},
    {"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "ts": 0, "dur": 5, "pid": 1, "tid": 2},
    {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 20, "dur": 70, "pid": 0, "tid": 7},
    {"ph": "X", "cat": "Trace", "name": "all", "ts": 0, "dur": 999, "pid": 1, "tid": 1},
    {"ph": "i", "name": "mark", "ts": 3}, "rubbish", {"ph": "X", "ts": "a", "dur": 1},
]  # fmt: skip


@pytest.fixture
def profile(tmp_path, capsys):
    """The operations of `profile --json` on traces of these events."""

    def run(*traces, flags=()):
        paths = []
        for number, events in enumerate(traces):
            paths.append(tmp_path / f"trace{number}.json")
            paths[-1].write_text(json.dumps({"traceEvents": events}))
        assert main(["profile", *map(str, paths), "--json", *flags]) == 0
        return json.loads(capsys.readouterr().out)["operations"]

    return run


def test_self_time_leaves_children_out(profile):
    found = {row["operation"]: row for row in profile(EVENTS)}
    assert found["aten::linear"]["self_ms"] == pytest.approx(0.020)
    assert found["aten::addmm"]["self_ms"] == pytest.approx(0.135)
    assert found["aten::addmm"]["calls"] == 3
    assert found["gemm"]["where"] == "device"
    assert sum(row["share"] for row in found.values() if row["where"] == "host") == pytest.approx(1)
    assert "all" not in found


def event(category, name, ts, dur, *, tid=1, launch=None):
    event = {"ph": "X", "cat": category, "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": tid}
    return event if launch is None else event | {"args": {"correlation": launch}}


def test_regions_have_host_time_and_the_device_time_that_they_launched(tmp_path, capsys):
    events = [
        event("user_annotation", "region: forward", 0, 100),
        event("user_annotation", "region: backward", 100, 300),
        event("user_annotation", "ProfilerStep#1", 0, 400),
        *(event("cuda_runtime", "cudaLaunchKernel", ts, 1, tid=2, launch=number)
          for number, ts in enumerate((50, 150, 160, 900))),
        event("kernel", "gemm", 80, 200, tid=7, launch=0),
        event("kernel", "gemm", 300, 500, tid=7, launch=1),
        event("kernel", "ncclAllReduce", 800, 60, tid=7, launch=2),
        event("kernel", "gemm", 950, 7, tid=7, launch=3),
    ]  # fmt: skip
    (tmp_path / "trace.json").write_text(json.dumps(events))
    assert main(["profile", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["regions"] == [
        {"region": "backward", "calls": 1, "host_ms": 0.3, "share": 0.75, "device_ms": 0.56},
        {"region": "forward", "calls": 1, "host_ms": 0.1, "share": 0.25, "device_ms": 0.2},
    ]
    assert not any("region" in row["operation"] for row in found["operations"])


def test_a_run_gives_the_first_rank_of_its_newest_profile(tmp_path, capsys):
    for attempt, name in ((1, "old"), (2, "new")):
        folder = tmp_path / "profile" / f"attempt-00{attempt}"
        folder.mkdir(parents=True)
        for rank in (0, 1):
            event = EVENTS[1] | {"name": f"{name}-{rank}"}
            data = gzip.compress(json.dumps([event]).encode())
            (folder / f"rank-0000{rank}.json.gz").write_bytes(data)
    assert main(["profile", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["operations"][0]["operation"] == "new-0"


def test_two_traces_are_ordered_by_what_changed(profile):
    slower = [*EVENTS, EVENTS[4] | {"ts": 500, "dur": 900}]
    first = profile(EVENTS, slower)[0]
    assert (first["operation"], first["calls_a"], first["calls_b"]) == ("gemm", 1, 2)
    assert first["change_ms"] == pytest.approx(0.9)


def test_only_the_top_is_shown(profile):
    assert len(profile(EVENTS, flags=["--top", "1"])) == 1


def test_a_folder_gives_its_newest_trace_and_gzip_is_unpacked(tmp_path, capsys):
    data = json.dumps(EVENTS).encode()
    (tmp_path / "rank0.trace.json.gz").write_bytes(gzip.compress(data))
    assert main(["profile", str(tmp_path), "--json"]) == 0
    assert "addmm" in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"[1", b"{}", b"\xff\x00", b"[" * 100_000])
def test_a_file_that_is_no_trace_is_misuse(content, tmp_path, capsys):
    (tmp_path / "trace.json").write_bytes(content)
    assert main(["profile", str(tmp_path / "trace.json")]) == 2
    assert "no Chrome trace" in capsys.readouterr().err
