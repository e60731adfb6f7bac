"""`loss` says whether two curves are the same, within a margin or exactly."""

import json

import numpy as np
import pytest

from analysis.__main__ import main
from tests.analysis.synthetic_runs import SyntheticRun, generate_run


@pytest.fixture
def loss(tmp_path, capsys):
    """Plants runs by name; the exit code, the pairs and the remarks of `loss --json` on them."""

    def run(*flags: str, **truths: SyntheticRun):
        folders = [str(generate_run(tmp_path / name, truth)) for name, truth in truths.items()]
        code = main(["loss", *folders, "--json", *flags])
        output = capsys.readouterr()
        return code, json.loads(output.out)["pairs"], output.err

    return run


def test_json_is_the_documented_contract(loss):
    _, pairs, _ = loss(a=SyntheticRun(), b=SyntheticRun(seed=1))
    assert set(pairs[0]) == {"a", "b", "ratio", "difference", "low", "high", "verdict"}


def test_seeds_of_one_config_have_the_same_loss(loss):
    _, pairs, _ = loss(a=SyntheticRun(intervals=500), b=SyntheticRun(intervals=500, seed=1))
    assert pairs[0]["verdict"] == "same loss"
    assert pairs[0]["low"] <= 0 <= pairs[0]["high"]


def test_a_loss_5_percent_higher_is_different(loss):
    _, pairs, _ = loss(a=SyntheticRun(), b=SyntheticRun(seed=1, loss_scale=1.05))
    assert pairs[0]["verdict"] == "different"
    assert pairs[0]["ratio"] == pytest.approx(1.05, rel=0.01)


def test_a_difference_at_the_margin_is_undetermined_and_a_wider_margin_settles_it(loss):
    runs = {"a": SyntheticRun(), "b": SyntheticRun(seed=1, loss_scale=1.01)}
    assert loss(**runs)[1][0]["verdict"] == "undetermined"


def test_a_wider_margin_calls_more_the_same(loss):
    _, pairs, _ = loss(
        "--margin", "0.05", a=SyntheticRun(), b=SyntheticRun(seed=1, loss_scale=1.01)
    )
    assert pairs[0]["verdict"] == "same loss"


def test_few_points_are_undetermined(loss):
    _, pairs, _ = loss(a=SyntheticRun(), b=SyntheticRun(seed=1, intervals=5))
    assert pairs[0]["verdict"] == "undetermined"
    assert "low" not in pairs[0]


def test_equal_losses_are_exactly_the_same(loss):
    code, pairs, _ = loss("--exact", a=SyntheticRun(), b=SyntheticRun(steps_per_s=9))
    assert code == 0
    assert pairs[0]["verdict"] == "identical"
    assert pairs[0]["difference"] == 0


def test_the_least_difference_fails_exact_and_its_step_is_named(tmp_path, capsys):
    a, b = (generate_run(tmp_path / name, SyntheticRun()) for name in "ab")
    lines = (b / "metrics.jsonl").read_text().splitlines()
    record = json.loads(lines[20])
    record["loss"] = float(np.nextafter(record["loss"], 2))
    lines[20] = json.dumps(record)
    (b / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert main(["loss", str(a), str(b), "--exact", "--json"]) == 1
    pair = json.loads(capsys.readouterr().out)["pairs"][0]
    assert (pair["differing"], pair["first_step"]) == (1, record["step"])
    assert 0 < pair["largest_relative"] < 1e-15


@pytest.mark.parametrize(("factor", "large"), [(2.0, "b"), (0.25, "a")])
def test_a_loss_scaled_by_the_world_size_is_recognised(loss, factor, large, tmp_path, capsys):
    ranks = round(max(factor, 1 / factor))
    _, _, err = loss(a=SyntheticRun(), b=SyntheticRun(seed=1, loss_scale=factor, ranks=ranks))
    assert f"the loss of {large} is {ranks} times that of" in err
    assert f"b has {ranks} ranks" in err
    assert main(["loss", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert f"{ranks} times throughout" in capsys.readouterr().out


def test_a_loss_that_is_no_whole_multiple_is_no_scale(loss):
    assert "times that of" not in loss(a=SyntheticRun(), b=SyntheticRun(seed=1, loss_scale=1.5))[2]


@pytest.mark.parametrize("by", ["step", "images", "train_s", "wall", "gpu_hours"])
def test_curves_align_on_every_axis(loss, by):
    code, pairs, _ = loss(
        "--by", by, a=SyntheticRun(intervals=300), b=SyntheticRun(intervals=300, seed=1)
    )
    assert code == 0
    assert pairs[0]["ratio"] == pytest.approx(1, abs=0.02)


def test_runs_recorded_at_other_steps_are_compared_on_the_common_range(loss):
    _, pairs, err = loss(a=SyntheticRun(), b=SyntheticRun(seed=1, every=7, intervals=250))
    assert pairs[0]["ratio"] == pytest.approx(1, abs=0.02)
    assert "optimizer steps 10 to 1750" in err


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_plot_has_the_same_bytes_for_the_same_runs(tmp_path, suffix, capsys):
    folders = [
        str(generate_run(tmp_path / f"{name}$<", SyntheticRun(seed=i)))
        for i, name in enumerate("ab")
    ]
    files = [tmp_path / f"{number}{suffix}" for number in range(2)]
    for file in files:
        assert main(["loss", *folders, "--plot", str(file)]) == 0
    assert files[0].read_bytes() == files[1].read_bytes()
    assert len(files[0].read_bytes()) > 5000


def coverage(cases: int, intervals: int, rho: float) -> float:
    from analysis.stats.intervals import mean_interval
    from tests.analysis.synthetic_runs import losses

    def covers(seed: int) -> bool:
        a = losses(SyntheticRun(intervals=intervals, rho=rho, seed=seed))
        b = losses(SyntheticRun(intervals=intervals, rho=rho, seed=seed + 100_000)) + 0.01
        found = mean_interval(b - a)
        return found.low is not None and found.low <= 0.01 <= found.high

    return float(np.mean([covers(seed) for seed in range(cases)]))


def test_the_interval_of_a_loss_difference_covers_it_in_a_small_draw():
    assert coverage(200, 500, 0.3) >= 0.9


@pytest.mark.long
def test_the_interval_of_a_loss_difference_covers_it_in_93_to_97_of_100():
    assert 0.93 <= coverage(2000, 500, 0.3) <= 0.97
    assert coverage(2000, 200, 0.5) >= 0.9


def test_falling_losses_a_factor_apart_are_different(tmp_path, capsys):
    """Two learning rates: both losses fall by decades, one at 0.57 of the other throughout."""
    rng = np.random.default_rng(4)
    steps = np.arange(1, 41)
    folders = []
    for name, scale in (("high", 1.0), ("low", 0.57)):
        losses = scale * steps**-0.8 * np.exp(0.1 * rng.standard_normal(len(steps)))
        rows = "\n".join(f"{step},{loss:.6f}" for step, loss in zip(steps, losses, strict=True))
        folders.append(tmp_path / f"{name}.csv")
        folders[-1].write_text(f"step,loss\n{rows}\n")
    assert main(["loss", *map(str, folders), "--json"]) == 0
    (pair,) = json.loads(capsys.readouterr().out)["pairs"]
    assert pair["verdict"] == "different"
