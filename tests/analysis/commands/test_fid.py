"""The FID of samples is compared over seeds, and not if it was measured otherwise."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.__main__ import main
from tests.analysis.conftest import Asked
from tests.analysis.synthetic_runs import START, SyntheticRun, append, generate_run

BLOCKS, REDRAW_SD = 20, 0.2
FACTS = {
    "guidance": 1.5, "sampler": "euler", "features": "Inception", "features_sha256": "ab",
    "reference_second_moment": 23.2464,
}  # fmt: skip


def record(level: float, rng: np.random.Generator, **facts: Any) -> dict[str, Any]:
    """An evaluation whose redraws scatter about `level`."""
    blocks = level + REDRAW_SD * np.sqrt(BLOCKS) * rng.standard_normal(BLOCKS)
    found = {"time": START + 1e6, "attempt": 1, "step": 2000, "images": 128_000, "kid": 0.02}
    found |= {"fid": level + 1, "fid_inf": float(blocks.mean()), "fid_samples": 5000}
    return found | {"fid_blocks": blocks.tolist(), "fid_facts": FACTS | facts}


@pytest.mark.parametrize(
    ("levels", "word"),
    [
        ([20.0, 20.5, 14.0], "undetermined"),  # a lucky seed
        ([16.0, 16.2, 16.1], "better"),
        ([24.0, 24.2, 24.1], "worse"),
        ([20.0, 20.1, 20.05], "same"),
        ([16.0], "not compared"),
    ],
)
def test_the_verdict_is_on_the_scatter_between_seeds(
    tmp_path: Path, asked: Asked, levels: list[float], word: str
) -> None:
    arms = {"gelu": [20.0, 20.1, 19.95], "swiglu": levels}
    for mlp, values in arms.items():
        for seed, value in enumerate(values):
            late = record(value, np.random.default_rng(0)) | {"fid_inf": value}
            evaluated(tmp_path / f"{mlp}{seed}", seed, mlp, late)
    assert _verdict(asked("compare", tmp_path))["word"] == word


def _verdict(found: dict[str, Any]) -> dict[str, Any]:
    return next(row for row in found["comparisons"] if row["quantity"] == "FID")


def evaluated(folder: Path, seed: int, mlp: str, *records: dict[str, Any]) -> None:
    truth = SyntheticRun(intervals=20, seed=seed, overrides=(f"model.mlp={mlp}",))
    append(generate_run(folder, truth), *records)


def planted(folder: Path, number: int, seed: int, level: float, mlp: str, **facts: Any) -> None:
    rng = np.random.default_rng(seed)
    early = record(2 * level, rng, seed=seed, **facts) | {"step": 100, "images": 6400}
    late = record(level, rng, seed=seed, **facts)
    evaluated(folder / f"run{number}", seed, mlp, late, early)


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({}, None),
        ({"reference": "/elsewhere"}, None),
        ({"guidance": 3.0}, "other guidance"),
        ({"features_sha256": "cd"}, "other features_sha256"),
        ({"sampler": "heun"}, "other sampler"),
        ({"reference_second_moment": 23.2464001}, None),
        (
            {"reference_second_moment": 29.0},
            "other reference_second_moment",
        ),
    ],
)
def test_arms_are_compared_at_their_last_evaluation_unless_a_fact_differs(
    tmp_path: Path, asked: Asked, facts: dict[str, Any], why: str | None
) -> None:
    for number in range(6):
        is_other = number >= 3
        planted(
            tmp_path, number, number % 3, 16 + number % 3 / 10 if is_other else 20.0,
            "swiglu" if is_other else "gelu", **(facts if is_other else {}),
        )  # fmt: skip
    arm = _verdict(asked("compare", tmp_path))
    assert (arm["word"], arm.get("why")) == ("not compared" if why else "better", why)
    _, cell = asked("cells", "--of", "fid_inf", tmp_path)["cells"]
    assert cell.get("loss_why") == why
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "report.html")]) == 0
    section = (tmp_path / "report.html").read_text().partition('<section id="verdicts">')[2]
    assert (why or "x the FID of run0") in section.partition("</section>")[0]


def test_distances_are_compared_at_the_last_evaluation_that_all_runs_have(
    tmp_path: Path, asked: Asked
) -> None:
    """Both arms have 40 at step 600; one went on to 20."""
    rng = np.random.default_rng(3)
    for seed in range(3):
        at = {"step": 600, "images": 38_400}
        both = [record(level, rng) | at for level in 40 + 0.1 * rng.standard_normal(2)]
        evaluated(tmp_path / f"a{seed}", seed, "gelu", both[0], record(20.0, rng))
        evaluated(tmp_path / f"b{seed}", seed, "swiglu", both[1])
    found = _verdict(asked("compare", tmp_path))
    assert found["ratio"] == pytest.approx(1.0, abs=0.02)
    assert "up to 38400 images" in found["verdict"]
    assert "nodes" not in found["verdict"]
