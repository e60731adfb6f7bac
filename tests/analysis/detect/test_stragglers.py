"""A rank that the others wait for is found, and no other."""

import json
import re
from dataclasses import dataclass

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.detect.stragglers import find_late, read_arrivals
from tests.analysis.synthetic_runs import START, SyntheticRun, generate_run


@dataclass(frozen=True, kw_only=True)
class RankTimes:
    """True arrival times: `noise_s` scatter of each rank, and a rank that is late by `late_s`.

    It is late at a `share` of the steps; None if no rank is late.
    """

    ranks: int
    steps: int
    noise_s: float
    step_s: float
    late: int | None = None
    late_s: float = 0.0
    share: float = 1.0
    seed: int = 0


def arrivals(truth: RankTimes):
    """Yield each rank with its times [steps]; in 2 % of steps any rank is late by chance."""
    rng = np.random.default_rng(truth.seed)
    steps = START + np.cumsum(truth.step_s * np.exp(0.1 * rng.standard_normal(truth.steps)))
    for rank in range(truth.ranks):
        time = steps + np.abs(truth.noise_s * rng.standard_normal(truth.steps))
        time += (rng.random(truth.steps) < 0.02) * rng.exponential(0.1, truth.steps)
        if rank == truth.late:
            time += (rng.random(truth.steps) < truth.share) * truth.late_s
        yield rank, time


def write_arrivals(folder, truth: RankTimes):
    """Write an arrivals file per rank."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, time in arrivals(truth):
        records = [{"step": step, "time": t} for step, t in enumerate(time.tolist(), start=1)]
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (folder / f"arrivals-{rank:05d}.jsonl").write_text(lines)
    return folder


def random_times(rng: np.random.Generator, *, is_late: bool) -> RankTimes:
    ranks, noise_s = int(rng.choice([2, 3, 4, 8])), float(rng.uniform(0.0005, 0.01))
    step_s = float(rng.uniform(0.1, 2.0))
    least = max(0.005, 8 * noise_s, 0.02 * step_s)
    return RankTimes(
        ranks=ranks,
        steps=int(rng.integers(40, 200)),
        noise_s=noise_s,
        step_s=step_s,
        late=int(rng.integers(ranks)) if is_late else None,
        late_s=float(least * rng.uniform(1, 10)),
        share=float(rng.uniform(0.5, 1.0)),
        seed=int(rng.integers(1 << 30)),
    )


def scores(cases: int, folder) -> tuple[int, float, float]:
    """Return false alarms without a late rank, and precision and recall with one."""
    rng = np.random.default_rng(0)
    alarms = named = right = 0
    for number in range(2 * cases):
        truth = random_times(rng, is_late=number >= cases)
        found = find_late(read_arrivals(write_arrivals(folder / str(number), truth)), attempt=1)
        if truth.late is None:
            alarms += bool(found)
        else:
            named += len(found)
            right += truth.late in [late.rank for late in found]
    return alarms, right / max(1, named), right / cases


def test_stragglers_are_distinguished_from_chance_in_a_small_sample(tmp_path):
    alarms, precision, recall = scores(20, tmp_path)
    assert alarms == 0
    assert precision >= 0.95
    assert recall >= 0.95


@pytest.mark.long
def test_stragglers_are_distinguished_from_chance(tmp_path):
    alarms, precision, recall = scores(200, tmp_path)
    assert alarms <= 2
    assert precision >= 0.95
    assert recall >= 0.95


def test_a_finding_names_the_rank_its_lateness_and_its_line(tmp_path, capsys):
    run = generate_run(tmp_path / "a", SyntheticRun())
    truth = RankTimes(ranks=4, steps=50, noise_s=0.001, step_s=0.5, late=2, late_s=0.1)
    write_arrivals(run / "attempts" / "001" / "ranks", truth)
    assert main(["runs", str(run), "--detect", "--json"]) == 1
    [found] = json.loads(capsys.readouterr().out)
    assert (found["finding"], found["step"], found["line"]) == ("straggler", 1, 1)
    detail = r"rank 2 comes 0\.\d+ s after the others at 100% of 50 steps of attempt 1"
    assert re.fullmatch(detail, found["detail"])


def test_few_steps_or_one_rank_give_no_finding(tmp_path):
    truth = RankTimes(ranks=3, steps=10, noise_s=0.001, step_s=0.5, late=1, late_s=0.1)
    assert find_late(read_arrivals(write_arrivals(tmp_path / "few", truth)), attempt=1) == []
    alone = RankTimes(ranks=1, steps=50, noise_s=0.001, step_s=0.5, late=0, late_s=0.1)
    assert find_late(read_arrivals(write_arrivals(tmp_path / "one", alone)), attempt=1) == []


def test_arrivals_are_read_exactly_and_with_their_lines(tmp_path):
    truth = RankTimes(ranks=2, steps=500, noise_s=0.001, step_s=0.5)
    found = read_arrivals(write_arrivals(tmp_path, truth))
    for rank, time in arrivals(truth):
        assert found[rank].time.tolist() == time.tolist()
        assert found[rank].step.tolist() == list(range(1, 501))
        assert found[rank].line.tolist() == list(range(1, 501))


@pytest.mark.parametrize(
    "malformed",
    [b"", b"\xff\x00" * 99, b'{"step": 1}\n', b'{"step": "x", "time": []}\n', b"[" * 9999,
     b'{"step": -5, "time": 1}\n', b'{"step": 1e300, "time": NaN}\n', b'{"step": true, "time": 1}'],
)  # fmt: skip
def test_malformed_arrivals_are_skipped(malformed, tmp_path):
    truth = RankTimes(ranks=3, steps=50, noise_s=0.001, step_s=0.5, late=1, late_s=0.1)
    write_arrivals(tmp_path, truth)
    (tmp_path / "arrivals-00009.jsonl").write_bytes(malformed)
    (tmp_path / "arrivals-x.jsonl").write_bytes(b"malformed")
    with (tmp_path / "arrivals-00000.jsonl").open("ab") as file:
        file.write(malformed + b'\n{"step": 51, "ti')
    assert [late.rank for late in find_late(read_arrivals(tmp_path), attempt=1)] == [1]


def test_the_report_links_a_straggler_to_the_file_of_its_rank(tmp_path):
    run = generate_run(tmp_path / "a", SyntheticRun())
    truth = RankTimes(ranks=4, steps=50, noise_s=0.001, step_s=0.5, late=2, late_s=0.1)
    write_arrivals(run / "attempts" / "001" / "ranks", truth)
    assert main(["report", str(run), "--out", str(tmp_path / "r.html")]) == 0
    assert "a/attempts/001/ranks/arrivals-00002.jsonl#line=1" in (tmp_path / "r.html").read_text()
