"""A bar that restarts after its end is an epoch, one that restarts before it another attempt."""

import numpy as np
import pytest

from analysis.measure.rate import measure_rate
from analysis.read.find import read_logs

TOTAL, STEP_S = 200, 0.5


def bars(epoch: int | None, *, until: int = TOTAL, every: int = 10) -> str:
    word = "" if epoch is None else f"Epoch {epoch}: "
    drawn = []
    for step in range(0, until + 1, every):
        clock = int(step * STEP_S)
        drawn.append(
            f"{word}{100 * step // TOTAL:3d}%|####      | {step}/{TOTAL} "
            f"[{clock // 60:02d}:{clock % 60:02d}<00:01,  2.00it/s, loss={5 - step / TOTAL:.3f}]"
        )
    return "\r".join(drawn) + "\n"


def read(path):
    [log] = read_logs([str(path)])
    return log


@pytest.mark.parametrize("words", [True, False])
def test_a_bar_of_every_epoch_is_one_run(words, tmp_path):
    validation = "Validating: 100%|####| 20/20 [00:05<00:00,  4.0it/s]\n"
    text = "".join(bars(n if words else None) + validation for n in range(20))
    (tmp_path / "x").write_text(text)
    log = read(tmp_path / "x")
    assert log.step[-1] == 20 * TOTAL
    assert log.attempts == 1
    assert (np.diff(log.step) > 0).all()
    assert measure_rate(log, clock="bar").steps_per_s.value == pytest.approx(1 / STEP_S, rel=0.02)


def test_the_clock_of_many_short_bars_is_the_sum_of_theirs(tmp_path):
    """Each bar takes 8.0 to 9.0 s and shows 8: by the seconds shown the rate would be 6 % high."""
    rng, drawn = np.random.default_rng(0), []
    for _ in range(300):
        step_s = rng.uniform(8.0, 9.0) / 40
        drawn += [
            f"  {step}/40 |##| {step}/40 [00:{int(step * step_s):02d}<00:01, 4.7it/s, loss=1.0]"
            for step in range(0, 41, 2)
        ]
    (tmp_path / "x").write_text("\r".join(drawn) + "\n")
    rate = measure_rate(read(tmp_path / "x"), clock="bar").steps_per_s
    assert rate.value == pytest.approx(40 / 8.5, rel=0.01)
    assert rate.low < 40 / 8.5 < rate.high


def test_a_bar_that_restarts_before_its_end_is_another_attempt(tmp_path):
    (tmp_path / "x").write_text(bars(None, until=150) + bars(None, until=TOTAL))
    logs = read_logs([str(tmp_path / "x")])
    assert [int(log.step[-1]) for log in logs] == [150, TOTAL]
