"""`plan`: when a run or a study would start. Slurm is replaced by shell scripts."""

from pathlib import Path

import pytest

from configs.schema import Run
from configs.yaml12 import dump_yaml
from launch.plan import forecast
from launch.plan.forecast import ForecastAnswer
from runs.folder import find_runs, resume_config
from tests.launch.conftest import DIGITS
from tests.launch.study_sandbox import end, end_all, submitted

GPUS = {"resources.gpu": ["a40", "a100"], "train.global_batch": [32, 64]}


@pytest.fixture(autouse=True)
def _cluster(slurm: None, command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that would start a job in 2036, and no forecast."""
    command(
        "sbatch",
        "echo sbatch: Job 1 to start at 2036-01-01T10:00:00 using 1 >&2"
        "; echo Submitted batch job 7",
    )
    monkeypatch.setattr(forecast, "ask", lambda asked: [ForecastAnswer()] * len(asked))


def test_of_a_run_the_start_is_said(launch) -> None:
    code, _, err = launch(
        "plan", DIGITS, "train.steps=7", "--site", "local", "--", "--partition=gpu"
    )
    assert code == 0
    assert err.endswith("it may start about 2036-01-01 10:00\n")


def test_a_refused_run_has_no_start(launch, command) -> None:
    command("sbatch", "echo no >&2; exit 1")
    code, _, err = launch("plan", DIGITS)
    assert (code, "it may start about unknown\n" in err) == (1, True)


def test_of_a_study_the_first_start_is_said(launch, tmp_path: Path) -> None:
    file = write(tmp_path, repeats=4, stop="decided")
    code, _, err = launch("plan", file)
    assert code == 0, err
    assert "the first run may start about 2036-01-01 10:00; " in err
    assert err.endswith("stop: decided may need fewer runs\n")


def test_of_a_study_folder_the_missing_runs_are_planned(launch, tmp_path: Path) -> None:
    study = submitted(launch, write(tmp_path))
    end_all(study, but=("a40_bs32", "a100_bs64"))
    for name in ("a40_bs32", "a100_bs64"):
        end(study, name, "failed", reason="node")
    code, out, err = launch("plan", study.path)
    assert (code, "2 runs, at most " in out) == (0, True), err
    assert "the first run may start about 2036-01-01 10:00\n" in err
    end_all(study)
    code, out, err = launch("plan", study.path)
    assert (code, out.splitlines().count("0 runs")) == (0, 1)
    assert err.endswith("nothing to run: no run is missing or failed\n")


def write(folder: Path, **keys: object) -> Path:
    """Write a study of two types of GPU and two batches."""
    file = folder / "asked.yaml"
    file.write_text(dump_yaml({"kind": "study", "base": str(DIGITS), "axes": GPUS, **keys}))
    return file


def test_the_forecast_of_a_resumed_run_has_the_changes_of_its_attempts(
    launch, site, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch("submit", DIGITS, "resources.gpu=a40")
    (run,) = find_runs(site)
    run.attempt(1).mkdir()
    (run.attempt(1) / "overrides.yaml").write_text(
        "resources: {gpu: a100, gpus_per_node: 2}\ntrain: {micro_batch: 4}\n"
    )
    asked: list[Run] = []

    def ask(configs: list[Run]) -> list[ForecastAnswer]:
        asked.extend(configs)
        return [ForecastAnswer()] * len(configs)

    monkeypatch.setattr(forecast, "ask", ask)
    launch("plan", run.path, "train.steps=2000")
    assert asked == [resume_config(run, ["train.steps=2000"])]
    assert asked[0].resources.gpus_per_node == 2
