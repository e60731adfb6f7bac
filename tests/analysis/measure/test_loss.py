"""Losses are compared at the end of a run, over seeds if there are enough of them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from analysis.measure.loss import Compared, loss_contrast
from analysis.measure.loss_curve import Range, axis_values, why_unlike
from analysis.measure.time_to_target import parse_target, times_to_target
from analysis.read.run_log import RunLog
from analysis.stats.judge import judge
from analysis.stats.replicates import Contrast
from configs.errors import Unreadable
from tests.analysis.foreign_logs import log_of

Arms = tuple[list[RunLog], list[RunLog]]


def arms(ratios: Sequence[float], *, noise: float = 0.05, seed: int = 0) -> Arms:
    """Return two arms with a noisy curve for each seed, the second `ratio` times the first."""
    rng = np.random.default_rng(seed)
    curve = 2 / np.sqrt(np.arange(1, 201))
    found: Arms = ([], [])
    for number, ratio in enumerate(ratios):
        for arm, scale in zip(found, (1.0, ratio), strict=True):
            log = log_of({"loss": scale * curve * np.exp(rng.normal(0, noise, 200))})
            arm.append(replace(log, config={"seed": number}))
    return found


def word(found: Contrast, *, margin: float = 0.01) -> str:
    [verdict] = judge([(found, Compared(margin=margin).quantity)])
    return verdict.word


def of(pair: Arms, *, margin: float = 0.01) -> str:
    return word(loss_contrast(*pair, Compared(margin=margin)), margin=margin)


def test_losses_that_differ_by_more_than_their_seeds_do_are_better_or_worse() -> None:
    assert of(arms([0.56, 0.57, 0.55])) == "better"
    assert of(arms([1.08, 1.09, 1.10])) == "worse"


def test_losses_that_differ_as_their_seeds_do_are_undetermined() -> None:
    assert of(arms([0.95, 1.06, 1.01])) == "undetermined"


def test_equal_losses_are_the_same() -> None:
    assert of(arms([1.0] * 5, noise=0.01)) == "same"


def curves(effect: np.ndarray, *, seed: int = 0, average: float = 0.0) -> Arms:
    """Return two single runs, the second's losses times `effect`; `average` logs an EMA."""
    rng = np.random.default_rng(seed)
    found = []
    for scale in (np.ones(200), effect):
        loss = scale * (0.5 + 1 / np.sqrt(np.arange(1, 201))) * np.exp(rng.normal(0, 0.02, 200))
        for place in range(1, 200 if average else 0):
            loss[place] = average * loss[place - 1] + (1 - average) * loss[place]
        found.append([log_of({"loss": loss})])
    return found[0], found[1]


def test_curves_that_cross_are_not_the_same_though_their_means_are() -> None:
    effect = np.where(np.arange(200) < 100, 0.9, 1.1)
    words = [of(curves(effect, seed=n)) for n in range(20)]
    assert words.count("different") >= 18


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_two_runs_whose_seeds_differ_by_two_percent_are_rarely_called_different(
    average: float,
) -> None:
    rng = np.random.default_rng(0)
    words = [
        of(curves(np.full(200, np.exp(0.028 * rng.standard_normal())), seed=n, average=average))
        for n in range(200)
    ]
    assert words.count("different") / 200 <= 0.06


def on(source: str, vae: str | None) -> RunLog:
    values = {"loss": np.linspace(2, 1, 50), "time": np.arange(50)}
    log = log_of(values, facts={"vae_sha256": vae} if vae else None)
    return replace(log, config={"kind": "pretrain", "data.source": source})


@pytest.mark.parametrize("other", [("latents", "b"), ("folder", None)], ids=str)
def test_losses_of_other_latents_are_not_compared(other: tuple[str, str | None]) -> None:
    found = loss_contrast([on("latents", "a")], [on(*other)], Compared())
    assert word(found) == "not compared"
    with pytest.raises(Unreadable, match=r"latents of another VAE|other data"):
        times_to_target([on("latents", "a"), on(*other)], parse_target("loss<=1.5"))
    # Those of the same VAE are, and of an older run that does not name its VAE.
    for same in ("a", None):
        found = loss_contrast([on("latents", "a")], [on("latents", same)], Compared())
        assert word(found) == "same"


def test_what_printed_digits_leave_open_is_in_the_interval() -> None:
    """Flat losses of .0165 and .0235 are both printed as .02."""
    a, b = (log_of({"loss": np.full(100, 0.02)}), log_of({"loss": np.full(100, 0.02)}))
    found = loss_contrast([a], [b], Compared())
    assert word(found) == "undetermined"
    assert found.mean is not None
    assert found.mean.ratio().high > 0.0235 / 0.0165
    exact = [log_of({"loss": np.full(100, np.pi)})]
    assert word(loss_contrast(exact, exact, Compared())) == "same"


def test_losses_by_records_that_count_nothing_known_are_not_compared() -> None:
    log = log_of({"loss": np.geomspace(2, 1, 50)}, axis="unit")
    assert word(loss_contrast([log], [log], Compared())) == "not compared"


def test_training_losses_of_another_objective_are_not_compared() -> None:
    log = log_of({"loss": np.linspace(2, 1, 50)})
    plain, extra, other = (
        replace(log, config={"kind": "pretrain"} | keys)
        for keys in (
            {"objective.extra.dispersive": 0.0},
            {"objective.extra.dispersive": 0.25},
            {"objective.prediction": "v"},
        )
    )
    assert "another objective" in (why_unlike(plain, extra, "loss") or "")
    assert why_unlike(plain, extra, "validation_loss") is None
    assert "another objective" in (why_unlike(plain, other, "validation_loss") or "")
    assert word(loss_contrast([extra], [extra], Compared())) == "same"


def test_two_curves_that_part_steadily_have_the_interval_of_their_noise() -> None:
    rng = np.random.default_rng(3)
    step = np.arange(1, 41)
    ratio = np.exp(-0.4 * step / 40)
    a, b = (
        log_of({"loss": mean * np.exp(0.01 * rng.standard_normal(40))}, steps=step)
        for mean in (np.ones(40), ratio)
    )
    ends = loss_contrast([a], [b], Compared()).mean.estimate()
    assert -0.5 < ends.low < -0.39 < ends.high < -0.3


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (Range(by="step", low=10, high=1200), "up to step 1200, which all have"),
        (Range(by="step", low=1080, high=1200), "from step 1080 to 1200, which all have"),
        (
            Range(by="train_s", low=0.5, high=60),
            "up to 60 seconds of training steps, which all have",
        ),
    ],
)
def test_a_range_names_its_begin_if_that_leaves_something_out(found, told):
    assert found.remark == told


@pytest.mark.parametrize("clock", ["time", "elapsed_s"])
def test_the_wall_time_of_a_log_without_events_is_since_its_first_step(clock: str) -> None:
    begun = 1.77e9 if clock == "time" else 0.0
    log = log_of({clock: begun + 2.0 * np.arange(1, 31), "loss": np.ones(30)})
    assert axis_values(log, "wall").tolist() == [2.0 * step for step in range(1, 31)]
