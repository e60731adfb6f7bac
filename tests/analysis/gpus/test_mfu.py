"""MFU is relative to the reported GPU's peak, and absent if that is unknown."""

import json
from dataclasses import replace

import pytest

from analysis.__main__ import main
from tests.analysis.synthetic_runs import SyntheticRun, generate_run

# DiT-XL/2: 118.64 GMAC, 675 million parameters. fast-DiT's own figure on one A100: 107 images/s.
XL = {
    "training_flops_per_image": 6 * 118_640_000_000,
    "parameters": 675_129_632,
    "dtypes": {"compute": "bfloat16"},
}
FAST_DIT = SyntheticRun(
    global_batch=128,
    steps_per_s=107 / 128,
    cv=0.001,
    gpu="NVIDIA A100-SXM4-80GB",
    facts=XL,
    overrides=("data.source=dummy", "data.size=32", "data.channels=4", "model.patch=2"),
)


def run_json(capsys, *arguments):
    assert main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_fast_dit_on_one_a100_has_the_published_mfu(tmp_path, capsys):
    run = generate_run(tmp_path / "a", FAST_DIT)
    [row] = run_json(capsys, "speed", run)
    assert row["mfu"] == pytest.approx(0.245, abs=0.001)
    assert run_json(capsys, "runs", run)[0]["mfu"] == pytest.approx(row["mfu"])


def test_mfu_is_relative_to_all_devices(tmp_path, capsys):
    runs = [
        generate_run(tmp_path / str(n), replace(FAST_DIT, ranks=n, steps_per_s=n * 107 / 128))
        for n in (1, 2, 4)
    ]
    assert [row["mfu"] for row in run_json(capsys, "speed", *runs)] == pytest.approx(
        [0.244] * 3, rel=0.01
    )


@pytest.mark.parametrize(
    "unknown",
    [
        {"gpu": "NVIDIA H800"},
        {"gpu": "NVIDIA A100-SXM4-80GB MIG 1g.10gb"},
        {"gpu": None},
        {"facts": XL | {"dtypes": {"compute": "float8"}}},
        {"facts": XL | {"dtypes": "bfloat16"}},
        {"facts": XL | {"training_flops_per_image": None}},
        {"facts": XL | {"training_flops_per_image": -1}},
        {"facts": XL | {"training_flops_per_image": True}},
        {"facts": XL | {"ranks": 0}},
        {"steps_per_s": 10.0},  # more than the peak
        {"facts": XL | {"placement": [{"gpu": "NVIDIA A40"}, {"gpu": "NVIDIA H200"}], "ranks": 2}},
    ],
)
def test_an_unknown_device_dtype_or_count_or_an_impossible_rate_has_no_mfu(
    unknown, tmp_path, capsys
):
    [row] = run_json(capsys, "speed", generate_run(tmp_path / "a", replace(FAST_DIT, **unknown)))
    assert "mfu" not in row


@pytest.mark.parametrize(("compute", "peak"), [("float32", 19.5), ("tfloat32", 156)])
def test_single_precision_and_tf32_have_their_own_peaks(compute, peak, tmp_path, capsys):
    slower = FAST_DIT.steps_per_s / 10
    told = {"facts": XL | {"dtypes": {"compute": compute}}, "steps_per_s": slower}
    run = generate_run(tmp_path / "a", replace(FAST_DIT, **told))
    assert run_json(capsys, "speed", run)[0]["mfu"] == pytest.approx(0.0244 * 312 / peak, rel=0.01)
