"""The repeats that `cells --difference` asks for show the difference as often as it says."""

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.read.find import read_logs
from analysis.stats.contrast import welch
from analysis.study.power import _repeats, power_text
from tests.analysis.synthetic_runs import SyntheticRun, generate_run


def test_as_many_repeats_show_the_difference_in_four_of_five_studies():
    rng = np.random.default_rng(3)
    earlier = [10 * np.exp(0.03 * rng.standard_normal(50)) for _ in range(4)]
    text = _repeats("the rate", earlier, difference=0.03)
    needed = int(text.split()[2])
    shown = 0
    for _ in range(1000):
        fast, slow = np.exp(0.03 * rng.standard_normal((2, needed)) + np.log([[1.03], [1]]))
        found = welch(np.log(slow), np.log(fast))
        shown += found.value > 0 and found.p_value() < 0.05
    assert shown / 1000 == pytest.approx(0.8, abs=0.06)


def test_cells_say_how_many_repeats_show_a_difference(capsys):
    archive = "docs/measurements/recipes-small.tar.xz"
    assert main(["cells", archive, "--difference", "0.1", "--of", "validation_loss"]) == 0
    said = capsys.readouterr().err
    assert "validation_loss: " in said
    assert "repeats of a cell show a difference of 10 %" in said
    assert "steady steps for an interval of +-10 %" in said
    assert main(["cells", "docs/measurements/a-grid-small.tar.xz", "--difference", "0.1"]) == 0
    assert "loss: no cell has repeats that show its scatter" in capsys.readouterr().err


def test_an_unfinished_run_is_no_scatter_between_seeds(tmp_path):
    folders = [
        generate_run(tmp_path / f"s{seed}", SyntheticRun(seed=seed, loss_noise=0.001))
        for seed in range(3)
    ]
    records = (folders[2] / "metrics.jsonl").read_text().splitlines()
    (folders[2] / "metrics.jsonl").write_text("\n".join(records[:30]) + "\n")
    texts = power_text(read_logs([str(tmp_path)]), of="loss", difference=0.02)
    assert "loss: left out, since they are not done: 1 of 3 runs" in texts
    (said,) = (text for text in texts if text.startswith("loss: ") and "repeats" in text)
    assert "1 degrees of freedom" in said
    assert float(said.split("scatter by ")[1].split(",")[0]) < 0.01


@pytest.mark.parametrize("share", ["2", "0", "x"])
def test_a_difference_is_a_share(share: str, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["cells", "logs", "--difference", share])
    assert "a share between 0 and 1" in capsys.readouterr().err
