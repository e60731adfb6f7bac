"""The time limit by the forecast: `resources.hours: auto`. Slurm is replaced by shell scripts."""

from pathlib import Path

import pytest

from configs.load import load
from launch.plan import duration, forecast
from launch.plan.forecast import ForecastAnswer
from runs.folder import find_runs, resume_config
from runs.records import RecordWriter
from tests.launch.conftest import DIGITS

AUTO = ("resources.gpu=a40", "resources.hours=auto", "train.steps=1000000",
        "checkpoint.every=100000")  # fmt: skip


@pytest.fixture(autouse=True)
def _slurm(command) -> None:
    command("sinfo", r"""[[ $* == *%D* ]] || printf 'gpu*|2-00:00:00|1-8\n'""")
    command("sbatch", "[[ $1 == --test-only ]] && exit 0; echo Submitted batch job 4711")
    command("squeue", "exit 0")
    command("sacct", "exit 1")


@pytest.fixture
def step_s(monkeypatch: pytest.MonkeyPatch):
    """Return a function that sets the upper end of the forecast of a step."""

    def to(high: float, parameters: int | None = None) -> None:
        step = {"value": high / 2, "low": high / 4, "high": high, "source": "guess by data sheet"}
        answer = ForecastAnswer(parameters=parameters, gpus={"a40": {"fits": True, "step_s": step}})
        monkeypatch.setattr(duration, "forecast_of", lambda _: answer)

    return to


def flags(out: str) -> dict[str, str]:
    words = [line.split()[1] for line in out.splitlines() if line.startswith("#SBATCH --time")]
    return dict(word.removeprefix("--").split("=") for word in words)


def test_the_limit_is_the_upper_end_with_start_and_saves_and_less_is_taken(launch, step_s) -> None:
    step_s(0.02)
    # 180 s + 11 saves of 5 s + 1.1 x 20,000 s = 22,235 s.
    code, out, err = launch("plan", DIGITS, *AUTO, "--script")
    assert (code, flags(out)) == (0, {"time": "06:20:00", "time-min": "00:20:00"}), err


def test_a_large_checkpoint_takes_longer_to_save(launch, step_s) -> None:
    step_s(0.02, parameters=1_875_000_000)
    # 11 saves of 30 GB take 105 s each; the least has two of them.
    found = flags(launch("plan", DIGITS, *AUTO, "--script")[1])
    assert found == {"time": "06:30:00", "time-min": "00:20:00"}


def test_more_than_the_partition_allows_is_cut_and_requeued(launch, step_s) -> None:
    step_s(1.0)
    code, out, err = launch("plan", DIGITS, *AUTO, "--script")
    assert (code, flags(out)) == (0, {"time": "48:00:00", "time-min": "00:20:00"}), err
    code, out, err = launch("submit", DIGITS, *AUTO, "--", "--no-requeue")
    assert (code, "partition gpu allows 48:00:00, not 305:40:00" in err) == (1, True)


def test_a_limit_that_is_no_multiple_of_10_minutes_is_not_exceeded(launch, step_s, command) -> None:
    command("sinfo", r"""[[ $* == *%D* ]] || printf 'gpu*|0:45:00|1-8\n'""")
    step_s(1.0)
    code, out, err = launch("plan", DIGITS, *AUTO, "--script")
    assert (code, flags(out)) == (0, {"time": "00:45:00", "time-min": "00:20:00"}), err


def test_a_short_run_or_one_that_cannot_be_requeued_takes_no_less(launch, step_s) -> None:
    step_s(0.0001)
    assert flags(launch("plan", DIGITS, *AUTO, "--script")[1]) == {"time": "00:10:00"}
    step_s(0.02)
    words = (*AUTO, "--script", "--", "--no-requeue")
    assert flags(launch("plan", DIGITS, *words)[1]) == {"time": "06:20:00"}


def test_a_resumed_run_asks_for_the_steps_that_are_left(launch, step_s, site) -> None:
    step_s(0.02)
    launch("submit", DIGITS, *AUTO)
    (run,) = find_runs(site)
    assert run.config().resources.hours == pytest.approx(6 + 1 / 3)
    run.attempt(1).mkdir()
    writer = RecordWriter(run.path, attempt=1)
    for event in ("started", "saved", "stopped"):
        writer.event(event, step=900_000)
    writer.close()
    # 180 s + 2 saves + 1.1 x 2,000 s = 2390 s.
    out = launch("plan", run.path, "resources.hours=auto", "--script")[1]
    assert flags(out) == {"time": "00:40:00", "time-min": "00:20:00"}
    # Its attempt has the number.
    assert f"{run.path} resources.hours=auto resources.hours=0.6666666666666666\n" in out


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
    launch("submit", run.path, "resources.hours=auto", "train.steps=2000")
    file, words = asked[0]
    assert file == run.config_file
    assert load(file, words) == resume_config(run, ["resources.hours=auto", "train.steps=2000"])
    assert "train.micro_batch=4" in words


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["resources.hours=auto"], "resources.hours: auto needs a forecast of the run on its GPU"),
        (["resources.hours=auto", "resources.gpu=a40", "model.family=unet"], "needs a forecast"),
        (["resources.hours=auto", "train.steps=1,2"], "resources.hours auto is for single runs"),
        (["resources.hours=0"], "resources.hours 0: expected more than 0, or auto"),
    ],
)  # fmt: skip
def test_without_a_forecast_or_for_a_study_auto_is_refused(
    launch, words: list[str], message: str
) -> None:
    code, out, err = launch("submit", DIGITS, *words)
    assert (code, out) == (2, "")
    assert message in err
