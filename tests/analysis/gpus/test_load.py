"""Planted causes of slowness are found by name, and none in clean runs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.gpus import load as gpus_load
from analysis.gpus.load import steady_load
from analysis.measure.rate import measure_rate
from analysis.read.run_folder import read_ours
from runs.folder import RunFolder
from tests.analysis.synthetic_runs import SyntheticRun, generate_run

FACTS = {"max_sm_mhz": 1410.0}
READINGS = {
    "power_w": 350.0, "sm_mhz": 1395.0, "busy": 0.98, "throttled_power": 0.02,
    "throttled_heat": 0.0, "throttled_hardware": 0.0, "throttled_setting": 0.0,
}  # fmt: skip
CLEAN = SyntheticRun(gpu_facts=FACTS, gpu_readings=READINGS, host_bound=0.05, data=0.03)


def explained(run) -> list[str]:
    return gpus_load.explained(run, steady_load(run))


def reading(**changes: float) -> dict[str, Any]:
    return {"gpu_readings": READINGS | changes}


def measured(folder: Path, truth: SyntheticRun):
    return measure_rate(read_ours(RunFolder(generate_run(folder, truth))), clock=None)


PLANTED = {
    "a clock at a power limit": (
        reading(sm_mhz=1100.0, throttled_power=0.34),
        "clocks at 1.10 of 1.41 GHz, throttled by power 34% of the time (GPU 0 of n1)",
    ),
    "heat at times": (
        reading(throttled_heat=0.2),
        "clocks at 1.40 of 1.41 GHz, throttled by heat 20% of the time (GPU 0 of n1); leave out "
        "the node (--exclude), and tell the site",
    ),
    "a slow loader": (
        reading(busy=0.68) | {"data": 0.31, "host_bound": 0.97},
        "input-bound: the loader waits 31% of the step, GPU idle 32% of the time; raise "
        "data.workers from 0",
    ),
    "a slow loader on a CPU": (
        {"gpu_facts": None, "host_bound": None, "data": 0.31},
        "input-bound: the loader waits 31% of the step; raise data.workers from 0",
    ),
    "a slow host": (
        reading(busy=0.6) | {"host_bound": 0.96},
        "host-bound: the GPU waits for the launch of 96% of the steps, GPU idle 40% of the time; "
        "train.compile: true, a larger micro batch",
    ),
    "a slow host of compiled code": (
        {"host_bound": 0.96, "gpu_facts": None, "overrides": ("train.compile=true",)},
        "host-bound: the GPU waits for the launch of 96% of the steps; a larger "
        "micro batch",
    ),
}  # fmt: skip


@pytest.mark.parametrize("cause", PLANTED)
def test_a_planted_cause_is_found_with_its_evidence_and_fix(cause: str, tmp_path: Path) -> None:
    changes, explanation = PLANTED[cause]
    run = measured(tmp_path / "a", replace(CLEAN, **changes))
    assert explained(run) == [f"a: {explanation}"]


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_found_in_clean_runs(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    truth = replace(
        CLEAN,
        seed=seed,
        intervals=int(rng.integers(20, 200)),
        data=float(rng.uniform(0, 0.13)),
        host_bound=float(rng.uniform(0, 0.4)),
        warmup=float(rng.uniform(0, 0.3)),
        outliers=float(rng.uniform(0, 0.1)),
        save_every=int(rng.integers(0, 20)),
        resume_at=int(rng.integers(5, 15)) if seed % 3 == 0 else None,
        ranks=int(rng.integers(1, 4)),
        gpu_facts=None if seed % 4 == 3 else FACTS,
        **reading(
            busy=float(rng.uniform(0.93, 1)),
            sm_mhz=float(rng.uniform(1330, 1405)),
            throttled_power=float(rng.uniform(0, 1)),
            temperature_c=float(rng.uniform(40, 85)),
        ),
    )
    assert explained(measured(tmp_path / "a", truth)) == []


def test_a_host_that_waits_beside_a_gpu_with_work_is_no_limit(tmp_path: Path) -> None:
    busy = replace(CLEAN, data=0.4, host_bound=0.02)
    assert explained(measured(tmp_path / "a", busy)) == []
    # Its queue was empty for less time than one would notice.
    assert explained(measured(tmp_path / "b", replace(CLEAN, host_bound=0.9))) == []
    assert explained(measured(tmp_path / "c", replace(CLEAN, host_bound=0.9, data=0.4))) == []


def test_an_idle_gpu_may_lower_its_clock(tmp_path: Path) -> None:
    idle = replace(CLEAN, data=0.7, host_bound=1.0, **reading(sm_mhz=900.0, busy=0.3))
    (only,) = explained(measured(tmp_path / "a", idle))
    assert only.startswith("a: input-bound: the loader waits 70% of the step")


def test_only_the_steady_window_counts(tmp_path: Path) -> None:
    """While it warms up, saves and evaluates, the GPU is idle and at a low clock."""
    truth = replace(CLEAN, warmup=0.3, save_every=8, save_s=60.0, intervals=100)
    folder = generate_run(tmp_path / "a", truth)
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steady = [r["time"] for r in records if "loss" in r and r["step"] > 400]
    path = folder / "attempts" / "001" / "gpu" / "n1.jsonl"
    header, *rows = (json.loads(line) for line in path.read_text().splitlines())
    for row in rows:
        ends = [t for t in steady if row["time"] - row["span_s"] - 2.6 <= t <= row["time"] + 2.6]
        if len(ends) < 4:
            row |= {"sm_mhz": 300.0, "busy": 0.0}
    path.write_text("".join(json.dumps(line) + "\n" for line in (header, *rows)))
    assert sum(row["busy"] == 0 for row in rows) > len(rows) / 3
    run = measure_rate(read_ours(RunFolder(folder)), clock=None)
    assert explained(run) == []
    assert steady_load(run).busy > 0.9


def test_the_throttled_gpu_is_named(tmp_path: Path) -> None:
    folder = generate_run(tmp_path / "a", replace(CLEAN, ranks=3))
    path = folder / "attempts" / "001" / "gpu" / "n1.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines[1:]:
        line |= {"sm_mhz": 800.0, "throttled_heat": 1.0} if line["gpu"] == 2 else {}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = measure_rate(read_ours(RunFolder(folder)), clock=None)
    (only,) = explained(run)
    assert "throttled by heat 100% of the time (GPU 2 of n1)" in only
    assert steady_load(run).power_w == pytest.approx(3 * 350, rel=0.02)


def test_speed_and_a_page_show_the_load_of_each_run_and_explain_the_slower_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = replace(CLEAN, steps_per_s=3.0, **PLANTED["a clock at a power limit"][0])
    folders = [str(generate_run(tmp_path / n, t)) for n, t in (("fast", CLEAN), ("slow", slow))]
    assert main(["speed", *folders, "--json"]) == 0
    out, err = capsys.readouterr()
    fast_row, slow_row = json.loads(out)
    assert fast_row["data_share"] == pytest.approx(0.03, abs=1e-3)
    assert slow_row["power_w"] == pytest.approx(350, rel=0.02)
    assert "slow: clocks at 1.10 of 1.41 GHz, throttled by power 34% of the time" in err
    assert "fast: clocks" not in err
    page = tmp_path / "report.html"
    assert main(["report", *folders, "--out", str(page)]) == 0
    assert "throttled by power 34% of the time" in page.read_text()
