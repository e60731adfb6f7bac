"""`cells --scaling` tells strong from weak, and finds the planted serial fraction."""

import json

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.measure.scaling import fit_serial
from tests.analysis.synthetic_runs import SyntheticRun, generate_run


@pytest.fixture
def scaling(tmp_path, capsys):
    """Plants runs by name; the exit code, the curves and the remarks of `scaling --json`."""

    def run(**truths: SyntheticRun):
        for name, truth in truths.items():
            generate_run(tmp_path / name, truth)
        code = main(["cells", "--scaling", str(tmp_path), "--json"])
        output = capsys.readouterr()
        return code, json.loads(output.out)["curves"], output.err

    return run


def strong(counts, *, serial=0.1, **changes):
    def rate(n):
        return 4 / (serial + (1 - serial) / n)

    return {f"r{n}": SyntheticRun(ranks=n, steps_per_s=rate(n), seed=n, **changes) for n in counts}


def test_one_batch_over_more_ranks_is_strong_scaling(scaling):
    code, [curve], _ = scaling(**strong([1, 2, 4, 8]))
    assert code == 0
    assert curve["kind"] == "strong"
    assert [point["ranks"] for point in curve["points"]] == [1, 2, 4, 8]
    expected = 1 / (0.1 + 0.9 / 4) / 4
    assert curve["points"][2]["efficiency"] == pytest.approx(expected, rel=0.01)
    assert curve["points"][2]["efficiency_low"] <= expected * 1.001
    assert curve["serial_fraction"] == pytest.approx(0.1, abs=0.01)
    assert curve["serial_fraction_low"] <= 0.1 <= curve["serial_fraction_high"]


def test_one_batch_per_rank_is_weak_scaling(scaling):
    runs = {f"r{n}": SyntheticRun(ranks=n, global_batch=64 * n, steps_per_s=4 * 0.9, seed=n)
            for n in (2, 4)}  # fmt: skip
    _, [curve], _ = scaling(r1=SyntheticRun(), **runs)
    assert curve["kind"] == "weak"
    assert curve["points"][2]["efficiency"] == pytest.approx(0.9, rel=0.01)
    assert "serial_fraction" not in curve


def test_two_points_have_no_fit_and_say_so(scaling):
    _, [curve], err = scaling(**strong([1, 2]))
    assert "serial_fraction" not in curve
    assert "no fit" in err


def test_runs_that_differ_otherwise_are_left_out(scaling):
    other = SyntheticRun(ranks=8, overrides=("train.compile=true",))
    _, [curve], err = scaling(**strong([1, 2]), other=other)
    assert len(curve["points"]) == 2
    assert "other: left out" in err


def test_one_rank_count_is_no_curve(scaling):
    code, found, _ = scaling(a=SyntheticRun(), b=SyntheticRun(seed=1))
    assert (code, found) == (1, [])


def test_the_interval_of_the_serial_share_covers_it():
    rng = np.random.default_rng(0)
    share = 1 / np.array([2.0, 4.0, 8.0, 16.0])
    found = [
        fit_serial(share, (0.1 + 0.9 * share) * np.exp(0.01 * rng.standard_normal(4)))
        for _ in range(200)
    ]
    assert np.mean([one.low <= 0.1 <= one.high for one in found]) >= 0.9
