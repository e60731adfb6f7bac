"""`loss` says whether two curves are the same, within a margin or exactly."""

import json

import numpy as np
import pytest

from analysis.__main__ import main
from tests.analysis.synthetic_runs import SyntheticRun, generate_run

LR = ("optimizer.lr=0.5",)


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
    _, pairs, _ = loss(a=SyntheticRun(intervals=500), b=SyntheticRun(intervals=500, seed=1))
    assert set(pairs[0]) == {
        "a", "b", "loss_a", "loss_b", "word", "ratio", "low", "high", "unit", "n", "comparisons",
        "verdict",
    }  # fmt: skip


def test_seeds_of_one_config_have_the_same_loss(loss):
    _, pairs, _ = loss(a=SyntheticRun(intervals=500), b=SyntheticRun(intervals=500, seed=1))
    assert pairs[0]["word"] == "same"
    assert pairs[0]["low"] <= 1 <= pairs[0]["high"]
    assert "b has the same loss as a within 1 %" in pairs[0]["verdict"]


def test_two_runs_whose_losses_differ_by_more_than_seeds_do_are_different(loss):
    _, pairs, _ = loss(a=SyntheticRun(), b=SyntheticRun(seed=1, loss_scale=1.1, overrides=LR))
    assert pairs[0]["word"] == "different"
    assert pairs[0]["ratio"] == pytest.approx(1.1, rel=0.01)
    assert "(these two runs, paired by step)" in pairs[0]["verdict"]


def test_a_loss_of_a_single_run_that_is_higher_by_what_seeds_differ_by_is_undetermined(loss):
    _, pairs, _ = loss(a=SyntheticRun(), b=SyntheticRun(seed=1, loss_scale=1.03, overrides=LR))
    assert pairs[0]["word"] == "undetermined"
    assert pairs[0]["why"] == "two seeds of one recipe may differ by as much"


def test_a_wider_margin_calls_more_the_same(loss):
    _, pairs, _ = loss(
        "--margin", "0.05", a=SyntheticRun(), b=SyntheticRun(seed=1, loss_scale=1.01)
    )
    assert pairs[0]["word"] == "same"


def test_equal_losses_are_exactly_the_same(loss):
    code, pairs, _ = loss("--exact", a=SyntheticRun(), b=SyntheticRun(steps_per_s=9))
    assert code == 0
    assert pairs[0]["differing"] == 0
    assert pairs[0]["exact"] == "identical"


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


@pytest.mark.parametrize("by", ["step", "images", "train_s", "wall", "gpu_hours"])
def test_curves_align_on_every_axis(loss, by):
    code, pairs, _ = loss(
        "--by", by, a=SyntheticRun(intervals=300), b=SyntheticRun(intervals=300, seed=1)
    )
    assert code == 0
    assert pairs[0]["ratio"] == pytest.approx(1, abs=0.02)


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
