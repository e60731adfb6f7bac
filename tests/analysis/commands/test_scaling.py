"""`cells --scaling` gives the speedup and the efficiency of more ranks."""

from pathlib import Path

import pytest

from analysis.__main__ import main
from tests.analysis.conftest import Asked
from tests.analysis.synthetic_runs import SyntheticRun, generate_run, write_lines


def test_efficiency_is_the_speedup_over_the_ranks_that_it_took(
    tmp_path: Path, asked: Asked
) -> None:
    for ranks in (4, 1, 2):
        for seed in range(3):
            rate = 4 * ranks**0.8 * (1 + seed / 100)
            truth = SyntheticRun(ranks=ranks, seed=seed, steps_per_s=rate, intervals=60)
            generate_run(tmp_path / f"n{ranks}-s{seed}", truth)
    rows = asked("cells", "--scaling", tmp_path)
    assert [row["ranks"] for row in rows] == [1, 2, 4]
    assert [row["word"] for row in rows[1:]] == ["faster", "faster"]
    assert rows[2]["efficiency"] == pytest.approx(4**-0.2, rel=0.01)
    assert rows[2]["efficiency_low"] < 4**-0.2 < rows[2]["efficiency_high"]


def test_runs_of_one_number_of_ranks_have_no_scaling(tmp_path: Path) -> None:
    generate_run(tmp_path / "a", SyntheticRun())
    assert main(["cells", "--scaling", str(tmp_path)]) == 1


def test_runs_whose_ranks_are_not_known_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ({"step": n, "loss": 1 / n, "time": 1.77e9 + n} for n in range(1, 31))
    write_lines(tmp_path / "log.jsonl", rows)
    assert main(["cells", "--scaling", str(tmp_path)]) == 1
    assert "left out: its ranks or its config are not known" in capsys.readouterr().err
