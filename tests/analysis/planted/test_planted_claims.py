"""A claim is decided only where the verdict on its runs is."""

from pathlib import Path

import numpy as np

from benchmarks.analysis_coverage.folders import START, Run, write_run
from configs.yaml12 import dump_yaml
from tests.analysis.conftest import Asked
from tests.analysis.planted.runs import seconds


def test_a_claim_of_a_speed_that_is_not_known_is_undecidable(tmp_path: Path, asked: Asked) -> None:
    own = np.random.default_rng(0)  # the warm-up that is cut depends on the draw
    write_run(tmp_path / "a", Run(seconds=np.exp(0.9 * own.standard_normal(30))))
    claims = [{"quantity": "steps_per_s", "runs": ["a"], "value": value} for value in (3, 6)]
    (tmp_path / "claims.yaml").write_text(dump_yaml({"claims": claims}))
    found = asked("audit", tmp_path / "claims.yaml")["claims"]
    assert [row["verdict"] for row in found] == ["undecidable"] * 2
    assert "further than a quarter" in found[0]["why"]


def test_a_claim_of_a_speed_that_changed_for_good_says_so(tmp_path: Path, asked: Asked) -> None:
    write_run(tmp_path / "a", Run(seconds=seconds() * np.repeat([1.0, 1.4], 60)))
    claim = {"quantity": "steps_per_s", "runs": ["a"], "value": 3}
    (tmp_path / "claims.yaml").write_text(dump_yaml({"claims": [claim]}))
    [found] = asked("audit", tmp_path / "claims.yaml")["claims"]
    assert found["verdict"] == "undecidable"
    assert "slower from step" in found["why"]


def test_a_claim_is_undecidable_if_the_verdict_on_its_runs_is(tmp_path: Path, asked: Asked) -> None:
    """Runs of one recipe scatter; no ratio of two of them is an effect."""
    for number, slower in enumerate((1.0, 1.03)):
        run = Run(seconds=seconds(slower=slower), seed=number, starts=(START + 1000.0 * number,))
        write_run(tmp_path / str(number), run)
    claim = {"quantity": "speedup", "runs": ["0", "1"], "value": 0.97}
    (tmp_path / "claims.yaml").write_text(dump_yaml({"claims": [claim]}))
    [found] = asked("audit", tmp_path / "claims.yaml")["claims"]
    assert found["verdict"] == "undecidable"
    assert "runs of one recipe scatter, too" in found["why"]
