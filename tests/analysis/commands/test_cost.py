"""`cost` counts GPU-hours and energy."""

import json
from dataclasses import replace

import pytest

from analysis.__main__ import main
from tests.analysis.synthetic_runs import SyntheticRun, write_lines


def test_gpu_hours_are_ranks_times_wall_time(plant, asked):
    [row] = asked("cost", *plant(a=SyntheticRun(cv=1e-9, ranks=4)))
    assert row["gpu_hours"] == pytest.approx(4 * (20 + 500) / 3600, rel=1e-3)
    assert row["useful"] == pytest.approx(0.9 * 500 / 520, rel=1e-3)


def test_a_log_without_times_has_no_gpu_hours_and_says_so(tmp_path, capsys):
    log = tmp_path / "a.log"
    log.write_text("".join(f"step {step} loss {1 / step:.4f}\n" for step in range(1, 50)))
    assert main(["cost", str(log)]) == 0
    assert "a.log: GPU-hours unknown" in capsys.readouterr().err


def test_a_long_pause_between_records_is_left_out_and_named(tmp_path, said):
    times = [10 * n + (5 * 3600 if n > 180 else 0) for n in range(361)]
    rows = ({"step": n, "loss": 1.0, "time": 1.7e9 + time} for n, time in enumerate(times))
    _, [row], err = said("cost", write_lines(tmp_path / "a.jsonl", rows), "--set", "gpus=8")
    assert row["gpu_hours"] == pytest.approx(8, abs=0.1)
    assert "a.jsonl: without 5 h in long pauses between records" in err


POWERED = SyntheticRun(gpu_facts={}, gpu_readings={"power_w": 360.0}, ranks=2)
# Two GPUs of 360 W for the 520 s of the ranks.
KWH = 2 * 360 * 520 / 3.6e6


def rewrite(run, change) -> None:
    """Change the rows of a run's GPUs."""
    path = run / "attempts" / "001" / "gpu" / "n1.jsonl"
    write_lines(path, [change(json.loads(line)) for line in path.read_text().splitlines()])


def test_energy_is_the_increase_of_the_counters_of_all_gpus(plant, said):
    _, [row], err = said("cost", *plant(a=POWERED))
    assert row["energy_kwh"] == pytest.approx(KWH, rel=0.01)
    assert row["energy_by"] == "NVML counter"
    assert row["energy_share"] == pytest.approx(1, abs=0.02)
    assert "cover" not in err


def test_energy_adds_up_over_attempts_with_what_was_lost(plant, asked):
    resumed = replace(POWERED, resume_at=100, lost_intervals=40)
    once, twice = asked("cost", *plant(a=POWERED, b=resumed))
    # 40 intervals of 2.5 s were done twice, and there is a second set-up of 20 s.
    more = 2 * 360 * (100 + 20) / 3.6e6
    assert twice["energy_kwh"] - once["energy_kwh"] == pytest.approx(more, rel=0.05)


def test_a_counter_that_begins_again_or_is_missing_is_bridged_by_power(plant, asked):
    again, without = plant(again=POWERED, without=POWERED)
    rewrite(again, lambda row: row | (
        {"energy_j": row["energy_j"] - 90_000} if row.get("energy_j", 0) > 90_000 else {}
    ))  # fmt: skip
    rewrite(without, lambda row: {n: v for n, v in row.items() if n not in ("energy_j", "gpus")} | (
        {"gpus": [{}, {}]} if "gpus" in row else {}
    ))  # fmt: skip
    rows = asked("cost", again, without)
    assert [row["energy_kwh"] for row in rows] == pytest.approx([KWH, KWH], rel=0.01)
    assert [row["energy_by"] for row in rows] == ["NVML counter and power", "NVML power"]


def test_a_counter_counts_over_rows_without_a_reading(plant, asked):
    [run] = plant(a=POWERED)
    rewrite(run, lambda row: {n: v for n, v in row.items() if n != "power_w" and (
        n != "energy_j" or round(row["time"] / row["span_s"]) % 2)})  # fmt: skip
    [row] = asked("cost", run)
    assert row["energy_kwh"] == pytest.approx(KWH, rel=0.05)
    assert row["energy_share"] == pytest.approx(1, abs=0.05)


def test_a_part_or_a_shared_card_is_said_to_be_whole(plant, asked):
    part = replace(POWERED, gpu_facts={"mig": 1})
    shared = replace(POWERED, gpu_readings={"power_w": 360.0, "others": 1})
    assert [row["energy_by"] for row in asked("cost", *plant(a=part, b=shared))] == [
        "NVML counter of whole cards (MIG)", "NVML counter of whole cards (shared)",
    ]  # fmt: skip


def test_readings_that_end_early_are_named(plant, said):
    [run] = plant(a=replace(POWERED, resume_at=100))
    (run / "attempts" / "002" / "gpu" / "n1.jsonl").unlink()
    _, [row], err = said("cost", run)
    assert 0.4 < row["energy_share"] < 0.7
    assert f"a: readings of its GPUs cover {row['energy_share']:.0%} of their time" in err


def test_without_readings_there_is_no_energy(plant, asked):
    [row] = asked("cost", *plant(a=SyntheticRun()))
    assert not [name for name in row if "kwh" in name or "energy" in name]
