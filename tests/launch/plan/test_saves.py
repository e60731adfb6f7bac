"""The size of a checkpoint, and the signal before the time limit, which leaves time for a save."""

from pathlib import Path

from configs.load import load, to_tree
from configs.schema import Pretrain
from launch.plan import saves
from launch.plan.forecast import ForecastAnswer
from runs.folder import make_run
from runs.records import RecordWriter
from tests.launch.conftest import DIGITS
from tests.launch.plan.conftest import SMALL, only, subject


def test_the_lead_is_compared_with_measured_saves(site: Path) -> None:
    run = make_run("digits", to_tree(load(DIGITS, [])), identity="1")
    writer = RecordWriter(run.path, attempt=1)
    writer.event("saved", step=10)
    writer.event("saved", step=20)
    writer.write(step=20, loss=1.0, train_s=100.0, save_s=300.0)
    writer.close()
    line = only([*saves.lead(subject(), SMALL)])
    # 60 s, a step of 5 s, a save of 150 s; the template requests 180 s.
    assert line.level == "fail"
    assert "215 s needed (measured in 1 earlier runs of this model)" in line.message
    assert "--signal=B:USR1@245" in line.fix
    other = only([*saves.lead(subject("model.depth=2"), SMALL)])
    assert other.level == "pass"
    assert "no run of this model is in LOGS" in other.message


def test_a_save_that_is_estimated_too_long_is_a_warning() -> None:
    line = only([*saves.lead(subject(), ForecastAnswer(parameters=7_000_000_000, gpus={}))])
    assert line.level == "warn"


def test_a_checkpoint_holds_weights_average_and_two_moments_in_fp32() -> None:
    with_average, without = subject().config, subject("train.ema_decay=null").config
    assert isinstance(with_average, Pretrain)
    assert isinstance(without, Pretrain)
    assert saves.checkpoint_bytes(with_average, 1000) == 16_000
    assert saves.checkpoint_bytes(without, 1000) == 12_000
