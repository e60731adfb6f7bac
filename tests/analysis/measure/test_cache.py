"""The cache of `runs` is never stale: after a change of files or code, runs are read again."""

import json
import os

import pytest

from analysis.__main__ import main
from analysis.measure import cache
from analysis.read import run_folder
from tests.analysis.synthetic_runs import SyntheticRun, generate_run


@pytest.fixture
def logs(tmp_path, tmp_path_factory, monkeypatch):
    """A folder of three runs whose files count as old enough to cache."""
    monkeypatch.setattr(cache, "SETTLED_S", 0.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    for number in range(3):
        generate_run(tmp_path / f"run{number}", SyntheticRun(intervals=20, seed=number))
    return tmp_path


@pytest.fixture
def runs(logs, capsys, monkeypatch):
    """Return the rows of `runs --json`, and the number of folders it read."""
    read = []
    original = run_folder.read_records
    monkeypatch.setattr(
        run_folder, "read_records", lambda path, **more: read.append(path) or original(path, **more)
    )

    def call(*paths: str):
        read.clear()
        assert main(["runs", *(paths or [str(logs)]), "--json"]) in (0, 1)
        return json.loads(capsys.readouterr().out), len(read)

    return call


def test_a_second_call_reads_nothing_and_returns_the_same(runs):
    first, reads = runs()
    again, rereads = runs()
    assert (reads, rereads) == (3, 0)
    assert again == first


def test_a_run_with_new_records_is_read_again(runs, logs):
    runs()
    # A run that is done can fail only in another attempt.
    begun = {"time": 1_700_009_998.0, "attempt": 2, "event": "started"}
    failed = {"time": 1_700_009_999.0, "attempt": 2, "event": "failed", "reason": "oom"}
    with (logs / "run1" / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in (begun, failed))
    found, reads = runs()
    assert reads == 1
    assert [row["state"] for row in found] == ["done", "failed (oom)", "done"]


def test_a_change_of_equal_length_and_mtime_is_seen(runs, logs):
    file = logs / "run1" / "metrics.jsonl"
    runs()
    before = file.stat()
    file.write_text(file.read_text().replace('"done"', '"nope"'))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    found, reads = runs()
    assert reads == 1
    assert found[1]["state"] == "started"


def test_new_overrides_of_an_attempt_and_new_manifests_are_seen(runs, logs):
    runs()
    (logs / "run0" / "attempts" / "001" / "overrides.yaml").write_text("train: {steps: 999}\n")
    (logs / "run2" / "manifest.json").write_text("{}")
    found, reads = runs()
    assert reads == 2
    assert found[0]["steps"] == 999
    assert "ranks" not in found[2]


def test_other_code_reads_everything_again(runs, monkeypatch):
    runs()
    monkeypatch.setattr(cache, "code_hash", lambda: "other")
    assert runs()[1] == 3


def test_files_changed_moments_ago_are_not_cached(runs, monkeypatch):
    monkeypatch.setattr(cache, "SETTLED_S", 60.0)
    runs()
    assert runs()[1] == 3


@pytest.mark.parametrize("text", ["", "[", "[]", '{"runs": 1}', '{"code": "x", "runs": {}}'])
def test_a_damaged_cache_is_replaced(runs, logs, text):
    runs()
    cache.cache_file(logs).write_text(text)
    assert runs()[1] == 3
    assert runs()[1] == 0


def test_runs_in_a_folder_that_cannot_be_written_are_read_each_time(runs, monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(cache, "replace_file", refuse)
    assert runs()[1] == 3
    assert runs()[1] == 3


def test_only_its_owner_can_read_the_cache(runs, logs):
    runs()
    assert cache.cache_file(logs).stat().st_mode & 0o077 == 0
    assert cache.cache_file(logs).parent.stat().st_mode & 0o077 == 0


def test_nothing_is_written_among_the_runs(runs, logs):
    before = sorted(logs.rglob("*"))
    runs()
    assert sorted(logs.rglob("*")) == before
