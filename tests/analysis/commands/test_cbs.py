"""`cbs` finds the critical batch size of published reference points, and of runs."""

import json
from pathlib import Path

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.stats.critical_batch import fit_critical_batch
from tests.analysis.commands.test_time_to_target import B_CRIT, E_MIN, truth
from tests.analysis.synthetic_runs import generate_run

# MLPerf Training v6.0, reference convergence points of FLUX.1 (github.com/mlcommons/logging,
# rcps_flux1.json): 20 runs at each global batch, in evaluations of 262,144 samples.
EVALUATION = 262_144
FLUX = {
    512: "27 28 27 27 28 28 29 28 27 28 27 28 28 27 27 27 28 28 27 28",
    1024: "33 33 31 33 33 34 31 32 33 31 31 33 32 32 33 32 32 32 34 33",
    2048: "36 39 40 42 41 47 40 38 40 36 37 44 37 37 41 38 40 41 38 38",
    4096: "58 61 59 60 58 59 61 58 57 58 59 62 56 57 53 59 59 60 59 58",
}
MEANS = {512: 7.235, 1024: 8.493, 2048: 10.355, 4096: 15.349}


def answer(capsys, *words: object) -> tuple[int, dict, str]:
    code = main(["cbs", *map(str, words), "--json"])
    output = capsys.readouterr()
    return code, json.loads(output.out or "{}"), output.err


def table(folder: Path, rows: list[tuple[object, object]]) -> Path:
    file = folder / "table.csv"
    file.write_text("global_batch,samples\n" + "".join(f"{b},{e}\n" for b, e in rows))
    return file


def test_the_flux_reference_points_have_their_critical_batch_size(tmp_path, capsys):
    rows = [(b, int(n) * EVALUATION) for b, counts in FLUX.items() for n in counts.split()]
    code, found, _ = answer(capsys, table(tmp_path, rows))
    assert code == 0
    assert found["b_crit"] == pytest.approx(2711, rel=0.02)
    assert found["b_crit_low"] == pytest.approx(2616, rel=0.02)
    assert found["b_crit_high"] == pytest.approx(2817, rel=0.02)
    assert found["e_min"] == pytest.approx(6.1e6, rel=0.02)


def test_their_means_alone_give_it_within_a_wider_interval(tmp_path, capsys):
    _, found, _ = answer(capsys, table(tmp_path, list(MEANS.items())))
    assert found["b_crit"] == pytest.approx(2711, rel=0.02)
    assert found["b_crit_low"] < 2616 < 2817 < found["b_crit_high"]


def test_two_batches_run_once_have_no_interval(tmp_path, capsys):
    _, found, err = answer(capsys, table(tmp_path, list(MEANS.items())[:2]))
    assert found.keys() == {"b_crit", "e_min"}
    assert "no interval: two batches, each run once" in err


@pytest.mark.parametrize("batches", [3, 5])
def test_the_interval_of_batches_run_once_covers_it(batches):
    rng, trials = np.random.default_rng(batches), 300
    sizes = 256 * 2 ** np.arange(batches)
    covered = 0
    for _ in range(trials):
        samples = E_MIN * (1 + sizes / 1000) * (1 + 0.02 * rng.standard_normal(batches))
        found = fit_critical_batch(
            {int(b): np.array([n]) for b, n in zip(sizes, samples, strict=True)}
        )
        low, high = found.b_crit.low, found.b_crit.high
        covered += low is None or (low <= 1000 and (high is None or high >= 1000))
    assert 0.91 <= covered / trials <= 0.99


def test_runs_to_a_target_give_what_was_planted(tmp_path, capsys):
    for batch in (64, 256):
        for seed in range(3):
            generate_run(tmp_path / f"{batch}-{seed}", truth(batch, seed=seed))
    generate_run(tmp_path / "late", truth(64, target=1.0))
    code, found, err = answer(capsys, tmp_path, "--target", "loss<=0.25")
    assert code == 0
    assert found["b_crit_low"] <= B_CRIT <= found["b_crit_high"]
    assert found["e_min"] == pytest.approx(E_MIN, rel=0.1)
    assert "left out: late never reached loss<=0.25" in err


def test_one_batch_is_undetermined_and_exits_1(tmp_path, capsys):
    code, found, err = answer(capsys, table(tmp_path, [(512, 7.0), (512, 7.1)]))
    assert (code, found) == (1, {})
    assert "undetermined" in err


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("batch,samples\n1,2\n", "no column global_batch"),
        ("global_batch,samples\n512,x\n", "line 2: samples 'x' is not a number above 0"),
        ("global_batch,samples\n512\n", "line 2: samples None is not a number"),
        ("global_batch,samples\n-4,2\n", "line 2: global_batch '-4' is not a number"),
        ("global_batch,samples\n4.5,2\n", "line 2: global_batch is not a whole number"),
    ],
)
def test_a_table_that_is_none_is_misuse(tmp_path, capsys, text, why):
    (tmp_path / "bad.csv").write_text(text)
    code, _, err = answer(capsys, tmp_path / "bad.csv")
    assert code == 2
    assert why in err


def test_runs_without_a_target_are_misuse(tmp_path, capsys):
    code, _, err = answer(capsys, generate_run(tmp_path / "a", truth(64)))
    assert code == 2
    assert "--target" in err
