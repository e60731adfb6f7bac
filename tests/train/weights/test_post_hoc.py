"""Averages of any width are made after training from snapshots of two."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from configs.errors import ConfigError
from configs.load import load
from tests.real_runs import DIGITS, TINY, resumed, trained
from train.engine.ema import EMA, GAMMAS
from train.weights.export import export
from train.weights.post_hoc import coefficients, gamma_of

KEYS = [
    *TINY, "train.steps=8", "train.ema_snapshots=2", "checkpoint.every=4", "optimizer.decay=0.0"
]  # fmt: skip


def test_the_coefficients_are_those_of_the_authors() -> None:
    # `solve_posthoc_coefficients` of NVlabs/edm2@4bf8162f60, training/phema.py: snapshots at 4, 8
    # and 12 of widths 0.05 and 0.1, for a width of 0.15 at 12.
    expected = [-0.00215421, 0.00745137, -0.05039408, 0.14572566, -0.30455628, 1.20392755]
    assert coefficients([4, 8, 12], gamma=gamma_of(0.15)).ravel() == pytest.approx(
        expected, abs=1e-6
    )
    assert [gamma_of(0.05), gamma_of(0.1)] == pytest.approx(GAMMAS, abs=1e-6)


def test_the_average_of_weights_that_grow_evenly_is_that_of_the_formula() -> None:
    network = torch.nn.Linear(1, 1, bias=False)
    ema = EMA(network, decay=None, warmup=False, powers=True)
    steps, found = range(100, 2001, 100), []
    for step in range(1, 2001):
        torch.nn.init.constant_(network.weight, step)
        ema.update(step)
        if step in steps:
            found.append([average["weight"].item() for average in ema.power_averages])
    for sigma_rel in (0.05, 0.08, 0.1, 0.2):
        gamma = gamma_of(sigma_rel)
        average = (coefficients(list(steps), gamma=gamma) * np.array(found)).sum()
        # The mean of t under (gamma + 1) t^gamma / T^(gamma + 1).
        assert average == pytest.approx(2000 * (gamma + 1) / (gamma + 2), rel=2e-3)


def test_snapshots_are_the_same_in_every_layout_and_after_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGS", str(tmp_path))
    alone = trained(tmp_path, [*KEYS, "train.micro_batch=4"])
    two = trained(tmp_path, [*KEYS, "layout.shard=2"], ranks=2)
    again = resumed(two, step=4, ranks=2, logs=tmp_path)
    weights = []
    for number, run in enumerate((alone, two, again)):
        file = tmp_path / f"{number}.safetensors"
        assert export(run, file, which="ema", sigma_rel=0.07) == 8
        weights.append(load_file(file))
    for name, expected in weights[0].items():
        assert (weights[1][name] - expected).abs().max() < 1e-5
        assert torch.equal(weights[1][name], weights[2][name])


def test_a_width_that_no_power_has_and_schedule_free_snapshots_are_refused() -> None:
    with pytest.raises(ConfigError, match="expected above 0"):
        gamma_of(0.3)
    with pytest.raises(ConfigError, match="ema_snapshots to null"):
        load(DIGITS, [*KEYS, "optimizer.kind=schedule_free", "train.ema_decay=null"])
