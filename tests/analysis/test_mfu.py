"""Utilisation is of the reported GPU's peak, and there is none where that is not known."""

import json

import pytest

from analysis.__main__ import main
from tests.analysis.planted import Truth, plant

# DiT-XL/2: 118.64 GMAC, 675 million parameters. fast-DiT's own figure on one A100: 107 images/s.
XL = {
    "training_flops_per_image": 6 * 118_640_000_000,
    "parameters": 675_129_632,
    "dtypes": {"compute": "bfloat16"},
}
FAST_DIT = Truth(
    global_batch=128,
    steps_per_s=107 / 128,
    cv=0.001,
    gpu="NVIDIA A100-SXM4-80GB",
    facts=XL,
    overrides=("data.source=dummy", "data.size=32", "data.channels=4", "model.patch=2"),
)


def ask(capsys, *arguments):
    assert main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def changed(**facts):
    return Truth(**vars(FAST_DIT) | facts)


def test_fast_dit_on_one_a100_reaches_what_it_does_in_the_literature(tmp_path, capsys):
    run = plant(tmp_path / "a", FAST_DIT)
    [row] = ask(capsys, "speed", run)
    assert row["mfu"] == pytest.approx(0.245, abs=0.001)
    assert ask(capsys, "runs", run)[0]["mfu"] == pytest.approx(row["mfu"])


def test_it_is_of_all_devices(tmp_path, capsys):
    runs = [
        plant(tmp_path / str(n), changed(ranks=n, steps_per_s=n * 107 / 128)) for n in (1, 2, 4)
    ]
    assert [row["mfu"] for row in ask(capsys, "speed", *runs)] == pytest.approx(
        [0.244] * 3, rel=0.01
    )
    [curve] = ask(capsys, "scaling", *runs)["curves"]
    assert [point["mfu"] for point in curve["points"]] == pytest.approx([0.244] * 3, rel=0.01)


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
        {"facts": XL | {"placement": [{"gpu": "NVIDIA A40"}, {"gpu": "NVIDIA H200"}], "ranks": 2}},
    ],
)
def test_what_is_not_known_has_none(unknown, tmp_path, capsys):
    [row] = ask(capsys, "speed", plant(tmp_path / "a", changed(**unknown)))
    assert "mfu" not in row


def test_single_precision_has_its_own_peak(tmp_path, capsys):
    run = plant(tmp_path / "a", changed(facts=XL | {"dtypes": {"compute": "float32"}}))
    assert ask(capsys, "speed", run)[0]["mfu"] == pytest.approx(0.244 * 312 / 19.5, rel=0.01)


def test_the_naive_count_is_shown_beside_it_where_it_is_asked_for(tmp_path, capsys):
    run = plant(tmp_path / "a", FAST_DIT)
    [row] = ask(capsys, "speed", run, "--flops")
    # 12LdT of attention is left out of it, too: with that it would be 1.43 to 1.49 times.
    assert 1.40 < row["mfu_naive_6n"] / row["mfu"] < 1.49
    assert row["training_flops_per_image"] == XL["training_flops_per_image"]
    assert main(["speed", str(run)]) == 0
    assert "24.4%" in capsys.readouterr().out
