"""`noise` tells the noise of runs whose gradients are known, by stages and bins."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.analysis.synthetic_runs import SyntheticRun, append, generate_run, rewrite

# K microbatches of B images, whose gradients have D coordinates of mean G and variance SPREAD^2.
D, K, B, G, SPREAD = 8, 4, 16, 0.4, 2.0


def norms(rng: np.random.Generator, *, spread: float = SPREAD) -> dict[str, float]:
    """Return mean |g_k|^2 and |g|^2 of one step."""
    means = G + spread / np.sqrt(B) * rng.standard_normal((K, D))
    return {"small": float((means**2).sum(1).mean()), "big": float((means.mean(0) ** 2).sum())}


def planted(folder: Path, *, steps: int = 300, seed: int = 0, more: tuple[dict, ...] = ()) -> Path:
    """A run of known gradients."""
    rng = np.random.default_rng(seed)
    run = generate_run(folder, SyntheticRun(intervals=steps, every=1))
    fixed = {"k": K, "b": B, "steps": 1}
    rewrite(run, lambda one: one | ({"gns": fixed | norms(rng)} if "loss" in one else {}))
    append(run, *more)
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted(tmp_path_factory.mktemp("logs") / "known", steps=1000)


def of_stages(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["t"] == "all"]


def of_bins(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["t"] != "all"]


def test_the_noise_of_all_t_is_what_was_planted(run, said):
    code, found, _ = said("noise", run, "--stages", 1)
    assert code == 0
    [stage] = of_stages(found)
    assert stage["run"] == "known"
    assert stage["step"] == 1000
    assert stage["verdict"] == "determined"
    assert stage["g2"] == pytest.approx(D * G**2, rel=0.05)
    assert stage["s"] == pytest.approx(D * SPREAD**2, rel=0.05)
    assert stage["b_simple"] == pytest.approx(SPREAD**2 / G**2, rel=0.1)
    assert stage["b_simple_low"] < stage["b_simple"] < stage["b_simple_high"]


def test_training_is_told_apart_by_stages(run, said):
    _, found, _ = said("noise", run)
    assert [stage["step"] for stage in of_stages(found)] == list(range(100, 1001, 100))
    assert all(stage["samples"] == 100 for stage in of_stages(found))


def test_too_little_is_undetermined_and_exits_1(tmp_path, said):
    code, found, err = said("noise", planted(tmp_path / "short", steps=5))
    [stage] = of_stages(found)
    assert stage["verdict"] == "undetermined"
    assert "b_simple" not in stage
    assert "b_simple_low" not in stage
    assert "undetermined in 1 of 1 stages" in err
    assert code == 1


def test_where_microbatches_change_a_stage_ends(tmp_path, said):
    run = planted(tmp_path / "resumed", steps=40)

    def resumed(one):
        is_later = "gns" in one and one["step"] > 30
        return one | {"gns": one["gns"] | {"k": 2, "b": 32}} if is_later else one

    rewrite(run, resumed)
    _, found, _ = said("noise", run, "--stages", 1)
    assert [stage["step"] for stage in of_stages(found)] == [30, 40]


BAD = [None, 5, "x", [[1]], {"k": 1, "b": 16}, {"k": 4, "b": 16, "steps": 0}, {"k": True}]


def test_malformed_records_are_skipped(tmp_path, said):
    odd = tuple(
        {"step": 900 + n, "images": 1, "loss": 1.0, "gns": bad} for n, bad in enumerate(BAD)
    )
    run = planted(tmp_path / "odd", steps=30, more=odd)
    code, found, _ = said("noise", run)
    assert code == 0
    assert of_stages(found)[-1]["step"] == 30


def test_a_run_without_noise_is_misuse(tmp_path, said):
    code, _, err = said("noise", generate_run(tmp_path / "a", SyntheticRun(intervals=20)))
    assert code == 2
    assert "gns.enabled=true" in err


def measured(folder: Path) -> Path:
    """A run that measured two checkpoints, 40 samples of all t and of every bin."""
    rng = np.random.default_rng(0)
    samples = []
    for checkpoint in (100, 300):
        for k in (None, 0, 1, 2):
            for _ in range(40):
                sample = {"checkpoint": checkpoint, "k": K, "b": B, "seconds": 0.1}
                sample |= norms(rng, spread=SPREAD if k is None else k + 1.0)
                sample |= {} if k is None else {"bin": k}
                samples.append({"step": len(samples) + 1, "images": 1, "gns_sample": sample})
    run = generate_run(folder, SyntheticRun(intervals=1))
    append(run, *samples)
    return run


def test_checkpoints_are_stages(tmp_path, said):
    code, found, _ = said("noise", measured(tmp_path / "checkpoints"))
    assert code == 0
    assert [stage["step"] for stage in of_stages(found)] == [100, 300]
    assert all(row["samples"] == 40 for row in found)
    bins = of_bins(found)
    assert [row["t"] for row in bins] == 2 * ["0-0.3333", "0.3333-0.6667", "0.6667-1"]
    assert bins[2]["s"] == pytest.approx(D * 3.0**2, rel=0.3)
