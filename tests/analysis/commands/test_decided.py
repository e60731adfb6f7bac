"""Studies of planted rates and losses: what is settled, and which waiting runs are skipped."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from analysis.__main__ import main
from configs.errors import ConfigError
from configs.load import resolve_study
from configs.yaml12 import dump_yaml
from runs.attempt.open import open_attempt
from runs.folder import RunFolder
from runs.state.fold import run_state
from runs.study_folder import StudyFolder, StudyRow
from tests.analysis.synthetic_runs import SyntheticRun, generate_run
from tests.real_runs import TINY, clean_environment

REPEATS = 6


class PlantedStudy:
    """A study of cells `a`, `b`, ... whose runs have rates and losses of their own."""

    def __init__(self, folder: Path, cells: str, *, seeds: bool = False) -> None:
        self.study, self._seeds = StudyFolder(folder), seeds
        folder.mkdir()
        axes = {"layout": {cell: {"train.steps": n + 9} for n, cell in enumerate(cells)}}
        repeats = {"axes": axes | {"seed": [*range(REPEATS)]}} if seeds else {"axes": axes}
        keys = {"base": "x.yaml", "stop": "decided", "repeats": 1 if seeds else REPEATS} | repeats
        self.study.study_file.write_text(dump_yaml(keys))
        self.rows = {
            (cell, n): StudyRow(
                index=REPEATS * place + n, order=len(cells) * n + place, cell=f"{cell}{n}",
                repeat=1 if seeds else n + 1, shape="1x0", digest="d",
                levels={"layout": cell} | ({"seed": n} if seeds else {}),
            )
            for place, cell in enumerate(cells)
            for n in range(REPEATS)
        }  # fmt: skip
        self.study.write_rows(self.rows.values())
        for cell, n in self.rows:
            self.wait(cell, n)

    def wait(self, cell: str, n: int, *overrides: str) -> Path:
        self.run(cell, n, rate=1.0, overrides=overrides)
        path = self.study.cell(f"{cell}{n}")
        shutil.rmtree(path / "attempts")
        (path / "manifest.json").unlink()
        (path / "metrics.jsonl").write_text('{"time": 1.0, "attempt": 1, "event": "queued"}\n')
        return path

    def run(
        self, cell: str, n: int, *, rate: float, loss: float = 1.0, overrides: tuple[str, ...] = ()
    ) -> None:
        path = self.study.cell(f"{cell}{n}")
        shutil.rmtree(path, ignore_errors=True)
        generate_run(
            path,
            SyntheticRun(
                steps_per_s=rate, intervals=30, seed=n if self._seeds else 0, cv=0.001,
                loss_scale=loss, overrides=overrides,
            ),
        )  # fmt: skip

    def states(self) -> dict[str, str]:
        found = {
            row.cell: run_state(RunFolder(self.study.cell(row.cell))) for row in self.study.rows()
        }
        return {name: state.name for name, state in found.items()}


def decide(study: StudyFolder, capsys, *flags: str) -> tuple[int, dict[tuple[str, str], dict], str]:
    code = main(["cells", "--decided", str(study.path), "--json", *flags])
    output = capsys.readouterr()
    rows = json.loads(output.out)
    return code, {(row["cell"], row["quantity"]): row for row in rows}, output.err


def test_settled_cells_are_skipped_and_the_first_runs_on_for_the_others(tmp_path, capsys):
    planted = PlantedStudy(tmp_path / "s", "abc")
    noise = np.random.default_rng(0).normal(0, 0.01, (3, REPEATS))
    noise[2] = [0.06, -0.05, 0.09, -0.04, 0.05, -0.07]
    for n in range(4):
        for place, (cell, rate) in enumerate({"a": 2.0, "b": 4.0, "c": 2.1}.items()):
            planted.run(cell, n, rate=rate * np.exp(noise[place, n]))
        code, rows, remarks = decide(planted.study, capsys, "--skip")
        if n < 2:
            assert rows["b0", "rate"]["why"] == "undecided"
            assert "skipped: b" not in remarks
    assert code == 1
    assert rows["b0", "rate"]["word"] == "faster"
    assert 1.8 < rows["b0", "rate"]["low"] < 2 < rows["b0", "rate"]["high"] < 2.2
    assert rows["c0", "rate"]["why"] == "undecided"
    states = planted.states()
    assert [states[f"b{n}"] for n in range(REPEATS)] == ["done"] * 4 + ["skipped"] * 2
    assert states["a5"] == states["c5"] == "queued"
    # A task that starts now ends at once, with the verdict as its reason.
    assert open_attempt(planted.study.cell("b5"), []) is None
    assert "decided: faster (2" in capsys.readouterr().err


def test_losses_by_seed_must_be_settled_too(tmp_path, capsys):
    planted = PlantedStudy(tmp_path / "s", "ab", seeds=True)
    loss = [1.1, 1.13, 1.09]
    for n in range(3):
        planted.run("a", n, rate=2.0 * 1.001**n)
        planted.run("b", n, rate=4.0, loss=loss[n])
    _, rows, _ = decide(planted.study, capsys, "--skip")
    assert rows["b0", "rate"]["word"] == "faster"
    assert rows["b0", "loss"]["why"] == "undecided"
    assert planted.states()["b5"] == "queued"
    for n in range(3):
        planted.run("b", n, rate=4.0, loss=0.5 + n / 1000)
    code, rows, _ = decide(planted.study, capsys, "--skip")
    assert code == 0
    assert rows["b0", "loss"]["word"] == "better"
    assert {planted.states()[name] for name in ("a3", "b3", "a5", "b5")} == {"skipped"}


def test_a_loss_is_not_settled_by_the_seeds_that_survived(tmp_path, capsys):
    planted = PlantedStudy(tmp_path / "s", "ab", seeds=True)
    for n in range(5):
        planted.run("a", n, rate=2.0 * 1.001**n)
        planted.run("b", n, rate=4.0, loss=0.5 + n / 1000)
    metrics = planted.study.cell("b1") / "metrics.jsonl"
    *lines, _ = metrics.read_text().splitlines()
    event = {"time": 1.8e9, "attempt": 1, "event": "failed", "reason": "nan", "step": 300}
    metrics.write_text("\n".join([*lines, json.dumps(event)]) + "\n")
    code, rows, _ = decide(planted.study, capsys, "--skip")
    assert code == 1
    assert rows["b0", "loss"]["why"] == "the loss of b1 is not finite from step 300 on"
    assert planted.states()["b5"] == "queued"


def test_a_repeat_that_still_runs_holds_up_those_behind_it(tmp_path, capsys):
    planted = PlantedStudy(tmp_path / "s", "ab")
    for n in (0, 1, 3, 4, 5):
        planted.run("a", n, rate=2.0 * 1.001**n)
        planted.run("b", n, rate=4.0)
    _, rows, _ = decide(planted.study, capsys, "--skip")
    assert rows["b0", "rate"]["n"] == 2
    assert planted.states()["b2"] == "queued"


def test_a_cell_that_all_repeats_could_not_settle_is_out_of_reach(tmp_path, capsys):
    planted = PlantedStudy(tmp_path / "s", "ab")
    for n, noise in enumerate([0.3, -0.3, 0.2, -0.25]):
        planted.run("a", n, rate=2.0)
        planted.run("b", n, rate=2.0 * np.exp(noise))
    code, rows, _ = decide(planted.study, capsys, "--skip")
    assert code == 0
    assert rows["b0", "rate"]["why"].startswith("out of reach")
    assert planted.states()["b5"] == "skipped"


def test_a_running_repeat_of_a_settled_cell_is_asked_to_stop(tmp_path, capsys):
    planted = PlantedStudy(tmp_path / "s", "ab")
    for n in range(3):
        planted.run("a", n, rate=2.0)
        planted.run("b", n, rate=4.0 + n / 1e3)
    running = planted.wait("b", 3)
    with (running / "metrics.jsonl").open("a") as records:
        records.write('{"time": 2.0, "attempt": 1, "event": "started", "step": 0}\n')
    (running / "attempts" / "001").mkdir(parents=True)
    for _ in range(2):
        _, rows, remarks = decide(planted.study, capsys, "--skip")
        assert rows["b0", "rate"]["word"] == "faster"
        assert RunFolder(running).stop_file.exists()
    # The second look finds the request of the first.
    assert "stopped:" not in remarks
    assert not [path for path in planted.study.path.glob("cells/*/STOP") if path.parent != running]


def test_only_a_study_with_repeats_can_be_decided(tmp_path, capsys):
    with pytest.raises(ConfigError, match="stop: decided needs at least 3 repeats"):
        resolve_study({"base": "x.yaml", "stop": "decided", "repeats": 2}, source="s.yaml")
    assert main(["cells", "--decided", str(tmp_path)]) == 2
    assert "one folder of a study" in capsys.readouterr().err


def test_the_job_of_a_run_that_is_done_ends_what_it_settles(tmp_path):
    planted = PlantedStudy(tmp_path / "s", "ab")
    for n in range(3):
        planted.run("a", n, rate=2.0)
    planted.run("b", 0, rate=1e-6)
    planted.run("b", 1, rate=1e5)
    real = planted.wait("b", 2, *TINY, "train.steps=30", "log.every=2")
    done = subprocess.run(
        ["bash", "jobs/pretrain.sbatch", str(real)], env=clean_environment(),
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "out of reach" in done.stdout
    assert planted.states() == dict.fromkeys(("a0", "a1", "a2", "b0", "b1", "b2"), "done") | (
        dict.fromkeys(("a3", "a4", "a5", "b3", "b4", "b5"), "skipped")
    )


@pytest.mark.parametrize(("other_node", "unit"), [("n1", "pass"), ("n2", "repeat")])
def test_cells_pairs_the_runs_of_a_pass_on_one_node_if_the_machine_drifts(
    tmp_path, capsys, other_node, unit
):
    planted = PlantedStudy(tmp_path / "study", "ab")
    for n in range(REPEATS):
        planted.run("a", n, rate=1 + 0.1 * n)
        planted.run("b", n, rate=1.03 * (1 + 0.1 * n), overrides=("data.workers=3",))
        manifest = planted.study.cell(f"b{n}") / "manifest.json"
        manifest.write_text(manifest.read_text().replace('"node": "n1"', f'"node": "{other_node}"'))
    assert main(["cells", str(planted.study.path), "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["cells"][1]
    assert row["unit"] == unit
    assert row["word"] == ("faster" if unit == "pass" else "undetermined")
    assert ("(6 passes" in row["verdict"]) == (unit == "pass")
