"""Loss curves of repeats are compared by the scatter between their seeds."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from analysis.measure.loss import CurvePair, pair_curves, pooled_verdict, same_quantity
from analysis.measure.time_to_target import group_runs, parse_target
from analysis.read.run_log import RunLog
from configs.errors import Unreadable
from tests.analysis.foreign_logs import log_of


def pairs(ratios: Sequence[float], *, seed: int = 0) -> list[CurvePair]:
    """Two noisy curves for each seed, the second `ratio` times the first."""
    rng, found = np.random.default_rng(seed), []
    for ratio in ratios:
        curve = 2 / np.sqrt(np.arange(1, 201))
        a, b = (log_of({"loss": curve * np.exp(rng.normal(0, 0.05, 200))}) for _ in range(2))
        b.values["loss"][:] *= ratio
        found.append(pair_curves(a, b))
    return found


def test_losses_that_differ_by_more_than_their_seeds_do_are_different() -> None:
    assert pooled_verdict(pairs([0.56, 0.57, 0.55]), margin=0.01) == "different"
    assert pooled_verdict(pairs([1.08, 1.09, 1.10]), margin=0.01) == "different"


def test_losses_that_differ_as_their_seeds_do_are_undetermined() -> None:
    assert pooled_verdict(pairs([0.95, 1.06, 1.01]), margin=0.01) == "undetermined"


def test_equal_losses_are_the_same() -> None:
    assert pooled_verdict(pairs([1.0] * 5), margin=0.02) == "same loss"


def test_two_seeds_say_nothing_of_their_scatter() -> None:
    assert pooled_verdict(pairs([0.5, 0.5]), margin=0.01) is None


def test_one_in_twenty_of_equal_arms_is_called_different() -> None:
    rng = np.random.default_rng(5)
    words = [
        pooled_verdict(pairs(np.exp(rng.normal(0, 0.03, 4)).tolist(), seed=n), margin=0.001)
        for n in range(300)
    ]
    assert words.count("different") / len(words) == pytest.approx(0.05, abs=0.035)


def on(source: str, vae: str | None) -> RunLog:
    log = log_of({"loss": np.linspace(2, 1, 50)}, facts={"vae_sha256": vae} if vae else None)
    return replace(log, config={"data.source": source})


@pytest.mark.parametrize("other", [("latents", "b"), ("folder", None)], ids=str)
def test_losses_of_other_latents_are_not_compared(other: tuple[str, str | None]) -> None:
    with pytest.raises(Unreadable, match="compare their images"):
        pair_curves(on("latents", "a"), on(*other))
    with pytest.raises(Unreadable, match="loss is of other latents"):
        group_runs([on("latents", "a"), on(*other)], parse_target("loss<=1.5"))
    # Those of the same VAE are, and of an older run that does not name its VAE.
    for same in ("a", None):
        assert pair_curves(on("latents", "a"), on("latents", same)).ratio == 1


def test_training_losses_of_other_terms_are_not_compared_but_validation_losses_are() -> None:
    log = log_of({"loss": np.linspace(2, 1, 50)})
    plain, extra = (
        replace(log, config={"data.source": "digits", "objective.extra.dispersive": weight})
        for weight in (0.0, 0.25)
    )
    with pytest.raises(Unreadable, match="compare validation_loss"):
        pair_curves(plain, extra)
    assert pair_curves(extra, extra).ratio == 1
    assert same_quantity(plain, extra, "validation_loss")
