"""Nodes, times and order of the attempts of runs that are compared."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.gpus.cost import cost_row
from analysis.measure.arms import Arm
from analysis.measure.rate import measure_rate
from analysis.measure.speed import speed_contrast
from analysis.measure.time_breakdown import time_breakdown
from analysis.observations import (
    attributed,
    begun_at,
    is_repeat,
    nodes_of,
    ran_at_once,
)
from analysis.read.find import read_logs
from analysis.read.machine import nodes
from analysis.read.run_folder import read_ours
from analysis.read.run_log import RunLog, Stay
from analysis.stats.repeats import TIMES_DIFFER, ran_apart
from runs.folder import RunFolder
from tests.analysis.synthetic_runs import START, SyntheticRun, generate_run


@pytest.fixture
def log(tmp_path: Path) -> RunLog:
    return read_ours(RunFolder(generate_run(tmp_path / "a", SyntheticRun(resume_at=150))))


def stay(*nodes: str, began: float | None = START, ended: float | None = None) -> Stay:
    return Stay(nodes=frozenset(nodes), ranks=1, gpu=None, began=began, ended=ended)


def at(log: RunLog, *stays: Stay) -> RunLog:
    return replace(log, name=f"{log.name}-{id(stays)}", stays=dict(enumerate(stays, start=1)))


def test_a_run_that_moved_has_the_nodes_of_all_its_attempts_and_is_not_attributed(
    log: RunLog,
) -> None:
    moved, stayed = at(log, stay("n9"), stay("n1")), at(log, stay("n1"), stay("n1"))
    assert nodes_of(moved) == {"n9", "n1"}
    assert "nodes differ, too" in attributed([stayed], [moved], of="clock")
    assert attributed([stayed], [stayed], of="clock").startswith("nothing known")


def test_runs_of_which_no_end_is_recorded_overlap_up_to_their_last_record(log: RunLog) -> None:
    a, b = at(log, stay("n1")), at(log, stay("n1", began=START + 100))
    assert set(ran_at_once([a, b]).values()) == {f"{a.name} and {b.name} ran at once on n1"}
    late = float(log.column("time")[log.attempt == 1].max()) + 1
    assert not ran_at_once([a, at(log, stay("n1", began=late))])
    # The second attempt ran elsewhere.
    assert not ran_at_once([at(log, stay("n1", ended=START + 50), stay("n2")), b])


def test_arms_of_which_one_ran_before_the_other_are_not_attributed(log: RunLog) -> None:
    sides = [
        [at(log, stay("n1", began=start + 10 * n, ended=start + 10 * n + 9)) for n in range(3)]
        for start in (0.0, 1000.0)
    ]
    assert "times differ, too" in attributed(*sides, of="clock")
    mixed = [sides[0][:2] + sides[1][:1], sides[1][1:] + sides[0][2:]]
    for others in (mixed, [side[:1] for side in sides]):
        assert attributed(*others, of="clock").startswith("nothing known")
    arms = [Arm(runs=tuple(measure_rate(one, clock="train") for one in side)) for side in sides]
    assert TIMES_DIFFER in speed_contrast(*arms).remarks[0]


def test_the_records_of_a_log_without_a_manifest_say_when_it_ran(log: RunLog) -> None:
    def beginning(at: float) -> RunLog:
        values = log.values | {"time": at + np.arange(len(log), dtype=float)}
        return replace(log, stays={}, values=values)

    sides = [[beginning(10_000.0 * (4 * side + n)) for n in range(4)] for side in (0, 1)]
    assert ran_apart(*([begun_at(one) for one in side] for side in sides))


def renumbered(folder: Path, **first: object) -> RunLog:
    """Return a run whose second attempt is the third: the second one died before it started."""
    records = (folder / "metrics.jsonl").read_text().replace('"attempt": 2', '"attempt": 3')
    (folder / "metrics.jsonl").write_text(records)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["attempts"][0] |= first
    manifest["attempts"][1]["attempt"] = 3
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return read_ours(RunFolder(folder))


def test_an_attempt_that_never_started_hides_no_lost_work(tmp_path: Path, log: RunLog) -> None:
    found = time_breakdown(renumbered(generate_run(tmp_path / "b", SyntheticRun(resume_at=150))))
    whole = time_breakdown(log)
    assert found
    assert whole
    assert found.seconds["lost"] == pytest.approx(whole.seconds["lost"])
    assert whole.seconds["lost"] > 10


def test_a_run_without_a_gpu_costs_no_gpu_hours(tmp_path: Path) -> None:
    folder = generate_run(tmp_path / "b", SyntheticRun(gpu=None))  # type: ignore[arg-type]
    row = cost_row(read_ours(RunFolder(folder)))
    assert (row["gpus"], row["gpu_hours"]) == (None, None)
    assert row["minutes"] > 1


def test_nodes_of_two_archives_are_not_the_same(tmp_path: Path) -> None:
    for name in "ab":
        folder = tmp_path / name
        generate_run(folder / "run", SyntheticRun())
        assert main(["archive", str(folder), "--out", f"{folder}.tar.xz"]) == 0
    one, other = read_logs([f"{tmp_path}/a.tar.xz", f"{tmp_path}/b.tar.xz"])
    assert {node.partition(" ")[2] for node in nodes_of(one)} == {"in a.tar.xz"}
    assert not nodes_of(one) & nodes_of(other)


def test_other_uncommitted_changes_are_other_code(tmp_path: Path) -> None:
    logs = []
    for name in ("a", "b"):
        folder = generate_run(tmp_path / name, SyntheticRun(facts={"dirty": True}))
        (folder / "attempts" / "001" / "code.patch").write_text(name)
        logs.append(read_ours(RunFolder(folder)))
    assert "code" in attributed(logs[:1], logs[1:], of="clock")
    assert not is_repeat(*logs)


def test_nodes_of_two_clusters_that_have_one_name_are_two() -> None:
    place = {"placement": [{"node": "gpu01"}]}
    names = [nodes(place | {"slurm": {"cluster": name}}) for name in ("alpha", "beta")]
    assert names[0].isdisjoint(names[1])
    assert nodes(place) == {"gpu01"}
