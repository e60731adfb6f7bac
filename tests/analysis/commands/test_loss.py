"""`loss` says whether two curves are the same, within a margin or exactly."""

import numpy as np
import pytest

from analysis.__main__ import main
from tests.analysis.synthetic_runs import SyntheticRun, generate_run, rewrite

LR = ("optimizer.lr=0.5",)
PLAIN = SyntheticRun()


@pytest.fixture
def loss(plant, asked):
    """Plants two runs, and gives the row of `loss` on them."""

    def run(*flags: str, b: SyntheticRun, a: SyntheticRun = PLAIN):
        return asked("loss", *plant(a=a, b=b), *flags)["pairs"][0]

    return run


def test_seeds_of_one_config_have_the_same_loss_in_the_documented_fields(loss):
    found = loss(a=SyntheticRun(intervals=500), b=SyntheticRun(intervals=500, seed=1))
    assert set(found) == {
        "a", "b", "loss_a", "loss_b", "word", "ratio", "low", "high", "unit", "n", "comparisons",
        "verdict",
    }  # fmt: skip
    assert found["word"] == "same"
    assert found["low"] <= 1 <= found["high"]
    assert "b has the same loss as a within 1 %" in found["verdict"]


def test_two_runs_whose_losses_differ_by_more_than_seeds_do_are_different(loss):
    found = loss(b=SyntheticRun(seed=1, loss_scale=1.1, overrides=LR))
    assert found["word"] == "different"
    assert found["ratio"] == pytest.approx(1.1, rel=0.01)
    assert "(these two runs, paired by step)" in found["verdict"]


def test_a_loss_of_a_single_run_that_is_higher_by_what_seeds_differ_by_is_undetermined(loss):
    found = loss(b=SyntheticRun(seed=1, loss_scale=1.03, overrides=LR))
    assert found["word"] == "undetermined"
    assert found["why"] == "two seeds of one recipe may differ by as much"


def test_a_wider_margin_calls_more_the_same(loss):
    assert loss("--margin", "0.05", b=SyntheticRun(seed=1, loss_scale=1.01))["word"] == "same"


def test_equal_losses_are_exactly_the_same(loss):
    found = loss("--exact", b=SyntheticRun(steps_per_s=9))
    assert (found["differing"], found["exact"]) == (0, "identical")


def test_the_least_difference_fails_exact_and_its_step_is_named(plant, said):
    a, b = plant(a=SyntheticRun(), b=SyntheticRun())

    def nudged(one):
        return one | {"loss": np.nextafter(one["loss"], 2)} if one.get("step") == 200 else one

    rewrite(b, nudged)
    code, found, _ = said("loss", a, b, "--exact")
    [pair] = found["pairs"]
    assert (code, pair["differing"], pair["first_step"]) == (1, 1, 200)
    assert 0 < pair["largest_relative"] < 1e-15


@pytest.mark.parametrize("by", ["step", "images", "train_s", "wall", "gpu_hours"])
def test_curves_align_on_every_axis(loss, by):
    found = loss("--by", by, a=SyntheticRun(intervals=300), b=SyntheticRun(intervals=300, seed=1))
    assert found["ratio"] == pytest.approx(1, abs=0.02)


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
