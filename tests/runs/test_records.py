"""Records are appended whole, and can be read after a crash."""

from pathlib import Path

import pytest

from runs.records import RecordWriter, Superseded, read_records, valid


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "attempts" / "001").mkdir(parents=True)
    return tmp_path


def good(step: int) -> list[bytes]:
    return [b'{"time": 1.0, "attempt": 1, "step": %d}' % step]


ODD_LINES = [
    b"\xff\x00",
    b"[1]",
    b"",
    b"null",
    b"[" * 100_000,
    b'{"step": 1}',
    b'{"time": "x", "attempt": 1}',
    b'{"time": NaN, "attempt": 1}',
    b'{"time": 1, "attempt": "1"}',
    b'{"time": 1, "attempt": 1, "step": "7"}',
    b'{"time": 1, "attempt": 1, "step": 1e3}',
    b'{"time": 1, "attempt": 1, "step": -1}',
    b'{"time": 1, "attempt": 1, "event": ["done"]}',
    b'{"time": 1, "attempt": 1, "event": "failed", "reason": {}}',
    b'{"time": 1, "attempt": 1, "step": ' + b"9" * 5000 + b"}",
]


def lines(run: Path) -> list[dict]:
    return [record for _, record in read_records(run / "metrics.jsonl")]


def test_a_record_has_a_time_an_attempt_and_the_known_values(run: Path) -> None:
    writer = RecordWriter(run, attempt=1)
    writer.write(step=5, loss=0.1 + 0.2, gpu_gb=None, grad_norm=float("nan"))
    record = lines(run)[0]
    assert record.pop("time") > 1e9
    assert record == {"attempt": 1, "step": 5, "loss": 0.30000000000000004}


def test_opening_closes_a_torn_last_line(run: Path) -> None:
    (run / "metrics.jsonl").write_bytes(good(1)[0] + b'\n{"step": 2, "lo')
    RecordWriter(run, attempt=1).write(step=3, loss=1.0)
    assert [record["step"] for record in lines(run)] == [1, 3]
    assert (run / "metrics.jsonl").read_text().count("\n") == 3


def test_an_attempt_writes_nothing_after_a_newer_one_has_begun(run: Path) -> None:
    writer = RecordWriter(run, attempt=1)
    writer.write(step=1)
    (run / "attempts" / "002").mkdir()
    with pytest.raises(Superseded):
        writer.write(step=2)
    with pytest.raises(Superseded):
        writer.event("saved")
    assert len(lines(run)) == 1


def test_lines_that_are_no_records_are_skipped(run: Path) -> None:
    (run / "metrics.jsonl").write_bytes(b"\n".join(good(1) + ODD_LINES + good(2)))
    odd: list[int] = []
    records = [record for _, record in read_records(run / "metrics.jsonl", odd=odd)]
    assert [record["step"] for record in records] == [1, 2]
    assert odd == list(range(2, 2 + len(ODD_LINES)))


def test_steps_that_a_resume_repeated_are_read_once_from_the_newest_attempt() -> None:
    first = [{"event": "started", "step": 0, "attempt": 1}]
    first += [{"step": step, "loss": 1.0, "attempt": 1} for step in (10, 20, 30)]
    second = [{"event": "started", "step": 20, "attempt": 2}]
    assert [r["step"] for r in valid(first + second)] == [10, 20]
    second += [{"step": step, "loss": 2.0, "attempt": 2} for step in (30, 40)]
    assert [(r["step"], r["attempt"]) for r in valid(first + second)] == [
        (10, 1),
        (20, 1),
        (30, 2),
        (40, 2),
    ]
