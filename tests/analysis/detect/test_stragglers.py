"""A rank that the others wait for is named, and no other."""

import datetime
import json
import re
from dataclasses import dataclass

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.detect.stragglers import find_late
from analysis.read.arrivals import read_arrivals
from tests.analysis.synthetic_runs import START, SyntheticRun, generate_run


@dataclass(frozen=True, kw_only=True)
class Crew:
    """Ranks that tell steps: scatter of each in seconds, the late rank (None: nobody), and when."""

    ranks: int
    steps: int
    noise_s: float
    step_s: float
    late: int | None = None
    late_s: float = 0.0
    share: float = 1.0
    seed: int = 0


def arrivals(crew: Crew):
    """When each rank comes to each step [rank, step]; one time in fifty any is late by chance."""
    rng = np.random.default_rng(crew.seed)
    told = START + np.cumsum(crew.step_s * np.exp(0.1 * rng.standard_normal(crew.steps)))
    for rank in range(crew.ranks):
        time = told + np.abs(crew.noise_s * rng.standard_normal(crew.steps))
        time += (rng.random(crew.steps) < 0.02) * rng.exponential(0.1, crew.steps)
        if rank == crew.late:
            time += (rng.random(crew.steps) < crew.share) * crew.late_s
        yield rank, time


def plant_logs(folder, crew: Crew):
    """A log of each rank."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, time in arrivals(crew):
        lines = ["2023-11-14 22:13:20,000 INFO started  step 0"]
        for number, t in enumerate(time, start=1):
            moment = datetime.datetime.fromtimestamp(t, datetime.UTC)
            stamp = f"{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03d}"
            step = f"step {number * 10:>5}/{crew.steps * 10}"
            lines.append(f"{stamp} INFO {step}  loss 0.3  train {t - START:.1f} s")
        (folder / f"rank-{rank:05d}.log").write_text("\n".join(lines) + "\n")
    return folder


def plant_arrivals(folder, crew: Crew):
    """The arrivals file of each rank."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, time in arrivals(crew):
        records = [{"step": step, "time": t} for step, t in enumerate(time.tolist(), start=1)]
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (folder / f"arrivals-{rank:05d}.jsonl").write_text(lines)
    return folder


def drawn(rng: np.random.Generator, *, is_late: bool) -> Crew:
    ranks, noise_s = int(rng.choice([2, 3, 4, 8])), float(rng.uniform(0.0005, 0.01))
    step_s = float(rng.uniform(0.1, 2.0))
    least = max(0.005, 8 * noise_s, 0.02 * step_s)
    return Crew(
        ranks=ranks,
        steps=int(rng.integers(40, 200)),
        noise_s=noise_s,
        step_s=step_s,
        late=int(rng.integers(ranks)) if is_late else None,
        late_s=float(least * rng.uniform(1, 10)),
        share=float(rng.uniform(0.5, 1.0)),
        seed=int(rng.integers(1 << 30)),
    )


def scores(cases: int, folder, planting=plant_logs) -> tuple[int, float, float]:
    """Clean crews with a false alarm; precision and recall of ranks named in spoilt ones."""
    rng = np.random.default_rng(0)
    alarms = named = right = 0
    for number in range(2 * cases):
        crew = drawn(rng, is_late=number >= cases)
        found = find_late(read_arrivals(planting(folder / str(number), crew)), attempt=1)
        if crew.late is None:
            alarms += bool(found)
        else:
            named += len(found)
            right += crew.late in [late.rank for late in found]
    return alarms, right / max(1, named), right / cases


SHAPES = pytest.mark.parametrize("planting", [plant_logs, plant_arrivals])


@SHAPES
def test_stragglers_are_told_from_chance_in_a_small_draw(planting, tmp_path):
    alarms, precision, recall = scores(20, tmp_path, planting)
    assert alarms == 0
    assert precision >= 0.95
    assert recall >= 0.95


@pytest.mark.long
@SHAPES
def test_stragglers_are_told_from_chance(planting, tmp_path):
    alarms, precision, recall = scores(200, tmp_path, planting)
    assert alarms <= 2
    assert precision >= 0.95
    assert recall >= 0.95


def test_the_rank_its_lateness_and_its_line_are_named(tmp_path, capsys):
    run = generate_run(tmp_path / "a", SyntheticRun())
    crew = Crew(ranks=4, steps=50, noise_s=0.001, step_s=0.5, late=2, late_s=0.1)
    plant_logs(run / "attempts" / "001" / "ranks", crew)
    assert main(["runs", str(run), "--detect", "--json"]) == 1
    [found] = json.loads(capsys.readouterr().out)
    assert (found["finding"], found["step"], found["line"]) == ("straggler", 10, 2)
    said = r"rank 2 comes 0\.\d+ s after the others at 100% of 50 steps of attempt 1"
    assert re.fullmatch(said, found["detail"])


@pytest.mark.parametrize("text", [b"", b"\xff\x00" * 100, b"2023-99-99 99:99:99,1 INFO step 5/9\n"])
def test_a_log_that_tells_no_arrivals_is_passed_over(text, tmp_path):
    plant_logs(tmp_path, Crew(ranks=3, steps=50, noise_s=0.001, step_s=0.5, late=1, late_s=0.1))
    (tmp_path / "rank-00007.log").write_bytes(text)
    (tmp_path / "rank-x.log").write_bytes(b"rubbish")
    assert [late.rank for late in find_late(read_arrivals(tmp_path), attempt=1)] == [1]


def test_few_steps_or_one_rank_name_nobody(tmp_path):
    crew = Crew(ranks=3, steps=10, noise_s=0.001, step_s=0.5, late=1, late_s=0.1)
    assert find_late(read_arrivals(plant_logs(tmp_path / "few", crew)), attempt=1) == []
    alone = Crew(ranks=1, steps=50, noise_s=0.001, step_s=0.5, late=0, late_s=0.1)
    assert find_late(read_arrivals(plant_logs(tmp_path / "one", alone)), attempt=1) == []


def test_arrivals_are_read_to_the_microsecond_and_with_their_lines(tmp_path):
    crew = Crew(ranks=2, steps=500, noise_s=0.001, step_s=0.5)
    found = read_arrivals(plant_arrivals(tmp_path, crew))
    for rank, time in arrivals(crew):
        assert found[rank].time.tolist() == time.tolist()
        assert found[rank].step.tolist() == list(range(1, 501))
        assert found[rank].line.tolist() == list(range(1, 501))


def test_arrivals_go_before_logs_which_tell_a_step_when_all_have_left_it(tmp_path, capsys):
    run = generate_run(tmp_path / "a", SyntheticRun())
    crew = Crew(ranks=4, steps=50, noise_s=0.001, step_s=0.5, late=2, late_s=0.1)
    ranks = run / "attempts" / "001" / "ranks"
    plant_logs(ranks, Crew(ranks=4, steps=50, noise_s=0.001, step_s=0.5, late=1, late_s=0.1))
    plant_arrivals(ranks, crew)
    assert main(["runs", str(run), "--detect", "--json"]) == 1
    [found] = json.loads(capsys.readouterr().out)
    assert (found["finding"], found["step"], found["line"]) == ("straggler", 1, 1)
    assert found["detail"].startswith("rank 2 comes 0.")


@pytest.mark.parametrize(
    "rubbish",
    [b"", b"\xff\x00" * 99, b'{"step": 1}\n', b'{"step": "x", "time": []}\n', b"[" * 9999,
     b'{"step": -5, "time": 1}\n', b'{"step": 1e300, "time": NaN}\n', b'{"step": true, "time": 1}'],
)  # fmt: skip
def test_rubbish_among_arrivals_is_passed_over(rubbish, tmp_path):
    crew = Crew(ranks=3, steps=50, noise_s=0.001, step_s=0.5, late=1, late_s=0.1)
    plant_arrivals(tmp_path, crew)
    (tmp_path / "arrivals-00009.jsonl").write_bytes(rubbish)
    with (tmp_path / "arrivals-00000.jsonl").open("ab") as file:
        file.write(rubbish + b'\n{"step": 51, "ti')
    assert [late.rank for late in find_late(read_arrivals(tmp_path), attempt=1)] == [1]


def test_the_report_links_a_straggler_to_its_ranks_own_file(tmp_path):
    run = generate_run(tmp_path / "a", SyntheticRun())
    crew = Crew(ranks=4, steps=50, noise_s=0.001, step_s=0.5, late=2, late_s=0.1)
    plant_arrivals(run / "attempts" / "001" / "ranks", crew)
    assert main(["report", str(run), "--out", str(tmp_path / "r.html")]) == 0
    assert "a/attempts/001/ranks/arrivals-00002.jsonl#line=1" in (tmp_path / "r.html").read_text()
