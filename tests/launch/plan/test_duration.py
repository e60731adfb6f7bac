"""How long a run takes by its forecast. Slurm is replaced by shell scripts."""

from pathlib import Path

import pytest

from configs.load import load
from launch.plan import forecast
from launch.plan.forecast import ForecastAnswer
from launch.plan.outlook import RunForecast, forecast_run
from launch.submit.run import run_request
from runs.folder import find_runs, resume_config
from runs.records import RecordWriter
from tests.launch.conftest import DIGITS

LONG = ["resources.gpu=a40", "train.steps=1000000", "checkpoint.every=100000"]
STEP = {"value": 0.01, "low": 0.005, "high": 0.02, "source": "guess by data sheet"}


@pytest.fixture(autouse=True)
def _slurm(command) -> None:
    command("sinfo", r"""[[ $* == *%D* ]] || printf 'gpu*|2-00:00:00|1-8\n'""")
    command("sbatch", "[[ $1 == --test-only ]] && exit 0; echo Submitted batch job 4711")
    command("squeue", "exit 0")
    command("sacct", "exit 1")


def forecast_of(source: Path, *words: str, parameters: int | None = None) -> RunForecast:
    request = run_request(source, [*LONG, *words], site_name=None, extra={})
    found = forecast_run(request, {"step_s": STEP, "parameters": parameters})
    assert found is not None
    return found


def test_the_start_saves_and_a_share_for_evaluations_are_added_to_the_steps(launch) -> None:
    # 180 s + 11 saves of 5 s + 1.1 x the steps.
    found = forecast_of(DIGITS)
    assert (found.value_s, found.low_s) == (235 + 11_000, 235 + 5500)
    assert (found.high_s, found.source) == (235 + 22_000, "guess by data sheet")


def test_a_large_checkpoint_takes_longer_to_save(launch) -> None:
    # 11 saves of 30 GB take 105 s each.
    found = forecast_of(DIGITS, parameters=1_875_000_000)
    assert found.high_s == pytest.approx(180 + 11 * 105 + 22_000)


def test_a_resumed_run_takes_the_steps_that_are_left(launch, site) -> None:
    launch("submit", DIGITS, *LONG)
    (run,) = find_runs(site)
    run.attempt(1).mkdir()
    writer = RecordWriter(run.path, attempt=1)
    for event in ("started", "saved", "stopped"):
        writer.event(event, step=900_000)
    writer.close()
    # 180 s + 2 saves + 1.1 x 2,000 s.
    assert forecast_of(run.path).high_s == pytest.approx(2390)


def test_without_a_forecast_the_duration_is_unknown(launch) -> None:
    assert forecast_run(run_request(DIGITS, LONG, site_name=None, extra={}), {}) is None


def test_the_forecast_of_a_resumed_run_has_the_changes_of_its_attempts(
    launch, site, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch("submit", DIGITS, "resources.gpu=a40")
    (run,) = find_runs(site)
    run.attempt(1).mkdir()
    (run.attempt(1) / "overrides.yaml").write_text(
        "resources: {gpu: a100, gpus_per_node: 2}\ntrain: {micro_batch: 4}\n"
    )
    asked: list[tuple[Path, list[str]]] = []

    def ask(queries):
        asked.extend(queries)
        return [ForecastAnswer()] * len(queries)

    monkeypatch.setattr(forecast, "ask", ask)
    launch("plan", run.path, "train.steps=2000")
    file, words = asked[0]
    assert file == run.config_file
    assert load(file, words) == resume_config(run, ["train.steps=2000"])
    assert "train.micro_batch=4" in words
