"""`cost` counts GPU-hours and energy."""

import json
from dataclasses import replace

import pytest

from analysis.__main__ import main
from tests.analysis.synthetic_runs import SyntheticRun, generate_run


@pytest.fixture
def cost(tmp_path, capsys):
    """Plants runs; the rows of `cost --json` by run, and the remarks."""

    def run(*flags: str, **truths: SyntheticRun):
        folders = [str(generate_run(tmp_path / name, truth)) for name, truth in truths.items()]
        assert main(["cost", *folders, "--json", *flags]) == 0
        output = capsys.readouterr()
        return {row["run"]: row for row in json.loads(output.out)}, output.err

    return run


def test_gpu_hours_are_ranks_times_wall_time(cost):
    found, _ = cost(a=SyntheticRun(cv=1e-9, ranks=4))
    assert found["a"]["gpu_hours"] == pytest.approx(4 * (20 + 500) / 3600, rel=1e-3)
    assert found["a"]["useful"] == pytest.approx(0.9 * 500 / 520, rel=1e-3)


def test_a_log_without_times_has_no_gpu_hours_and_says_so(tmp_path, capsys):
    log = tmp_path / "a.log"
    log.write_text("".join(f"step {step} loss {1 / step:.4f}\n" for step in range(1, 50)))
    assert main(["cost", str(log)]) == 0
    assert "a.log: GPU-hours unknown" in capsys.readouterr().err


def test_a_long_pause_between_records_is_left_out_and_named(tmp_path, capsys):
    times = [10 * n + (5 * 3600 if n > 180 else 0) for n in range(361)]
    rows = ({"step": n, "loss": 1.0, "time": 1.7e9 + time} for n, time in enumerate(times))
    log = tmp_path / "a.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    [row], err = rows_of(log, capsys=capsys, flags=("--set", "gpus=8"))
    assert row["gpu_hours"] == pytest.approx(8, abs=0.1)
    assert "a.jsonl: without 5 h in long pauses between records" in err


POWERED = SyntheticRun(gpu_facts={}, gpu_readings={"power_w": 360.0}, ranks=2)
# Two GPUs of 360 W for the 520 s of the ranks.
KWH = 2 * 360 * 520 / 3.6e6


def rewrite(run, change, *, attempt: int = 1) -> None:
    """Change the rows of a run's GPUs."""
    path = run / "attempts" / f"{attempt:03d}" / "gpu" / "n1.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(change(line)) + "\n" for line in lines))


def rows_of(*folders, capsys, flags=()):
    assert main(["cost", *map(str, folders), "--json", *flags]) == 0
    output = capsys.readouterr()
    return json.loads(output.out), output.err


def test_energy_is_the_increase_of_the_counters_of_all_gpus(cost):
    found, err = cost(a=POWERED)
    row = found["a"]
    assert row["energy_kwh"] == pytest.approx(KWH, rel=0.01)
    assert row["energy_by"] == "NVML counter"
    assert row["energy_share"] == pytest.approx(1, abs=0.02)
    assert "cover" not in err


def test_energy_adds_up_over_attempts_with_what_was_lost(cost):
    once, _ = cost(a=POWERED)
    twice, _ = cost(b=replace(POWERED, resume_at=100, lost_intervals=40))
    # 40 intervals of 2.5 s were done twice, and there is a second set-up of 20 s.
    more = 2 * 360 * (100 + 20) / 3.6e6
    assert twice["b"]["energy_kwh"] - once["a"]["energy_kwh"] == pytest.approx(more, rel=0.05)


def test_a_counter_that_begins_again_or_is_missing_is_bridged_by_power(tmp_path, capsys):
    again = generate_run(tmp_path / "again", POWERED)
    rewrite(again, lambda row: row | (
        {"energy_j": row["energy_j"] - 90_000} if row.get("energy_j", 0) > 90_000 else {}
    ))  # fmt: skip
    without = generate_run(tmp_path / "without", POWERED)
    rewrite(without, lambda row: {n: v for n, v in row.items() if n not in ("energy_j", "gpus")} | (
        {"gpus": [{}, {}]} if "gpus" in row else {}
    ))  # fmt: skip
    rows, _ = rows_of(again, without, capsys=capsys)
    assert [row["energy_kwh"] for row in rows] == pytest.approx([KWH, KWH], rel=0.01)
    assert [row["energy_by"] for row in rows] == ["NVML counter and power", "NVML power"]


def test_a_counter_counts_over_rows_without_a_reading(tmp_path, capsys):
    run = generate_run(tmp_path / "a", POWERED)
    rewrite(run, lambda row: {n: v for n, v in row.items() if n != "power_w" and (
        n != "energy_j" or round(row["time"] / row["span_s"]) % 2)})  # fmt: skip
    [row], _ = rows_of(run, capsys=capsys)
    assert row["energy_kwh"] == pytest.approx(KWH, rel=0.05)
    assert row["energy_share"] == pytest.approx(1, abs=0.05)


def test_a_part_or_a_shared_card_is_said_to_be_whole(tmp_path, capsys):
    part = replace(POWERED, gpu_facts={"mig": 1})
    shared = replace(POWERED, gpu_readings={"power_w": 360.0, "others": 1})
    folders = [generate_run(tmp_path / n, truth) for n, truth in (("a", part), ("b", shared))]
    rows, _ = rows_of(*folders, capsys=capsys)
    assert [row["energy_by"] for row in rows] == [
        "NVML counter of whole cards (MIG)", "NVML counter of whole cards (shared)",
    ]  # fmt: skip


def test_readings_that_end_early_are_named(tmp_path, capsys):
    run = generate_run(tmp_path / "a", replace(POWERED, resume_at=100))
    (run / "attempts" / "002" / "gpu" / "n1.jsonl").unlink()
    (row,), err = rows_of(run, capsys=capsys)
    assert 0.4 < row["energy_share"] < 0.7
    assert f"a: readings of its GPUs cover {row['energy_share']:.0%} of their time" in err


def test_without_readings_there_is_no_energy(cost):
    found, _ = cost(a=SyntheticRun())
    assert not [name for name in found["a"] if "kwh" in name or "energy" in name]
