"""The contrast of two arms: its unit, its claims, and how often they are false."""

from dataclasses import replace

import numpy as np
import pytest

from analysis.measure.loss import Compared
from analysis.stats.contrast import contrast, scatter_of
from analysis.stats.judge import holm, judge
from analysis.stats.mean import Mean
from analysis.stats.replicates import Contrast, Quantity, Replicate, refused

SPEED = Quantity(name="speed", better="higher", margin=0.01)
LOSS = Quantity(name="loss", better="lower", margin=0.01, seed_scatter=0.02)


def arm(logs, *, nodes=(), seeds=(), passes=(), rounds=(), stretches=(), begins=()):
    return [
        Replicate(
            log=float(log),
            nodes=frozenset([nodes[n]]) if len(nodes) else frozenset(),
            seed=seeds[n] if len(seeds) else None,
            study_pass=passes[n] if len(passes) else None,
            rounds=rounds[n] if len(rounds) else {},
            stretches=stretches[n] if len(stretches) else (),
            began=float(begins[n]) if len(begins) else None,
        )
        for n, log in enumerate(logs)
    ]


def word(found, quantity=SPEED):
    [verdict] = judge([(found, quantity)])
    return verdict.word


def single(value, error=0.001, unit="step"):
    return Contrast(mean=Mean(value=value, error=error, freedom=50.0), unit=unit, n=50)


def test_rounds_on_one_node_come_before_repeats():
    rounds = [{"1": 0.0, "2": 0.3, "3": -0.2}, {"1": 0.1, "2": 0.41, "3": -0.11}]
    a, b = (arm([0.0], rounds=[one]) for one in rounds)
    found = contrast(a, b)
    assert (found.unit, found.n, word(found)) == ("round", 3, "faster")
    fewer = {"1": 0.1, "2": 0.4}
    found = contrast(a, arm([0.0], rounds=[fewer]), steps=single(0.6))
    assert (found.mean.error, found.why) == (None, "2 rounds in common: a claim needs 3")
    assert word(found) == "undetermined"


def test_losses_of_arms_on_nodes_of_their_own_support_a_claim_that_names_the_nodes():
    a = arm([0.0, 0.01, -0.01], nodes=["n1"] * 3, seeds=[0, 1, 2])
    b = arm([0.1, 0.11, 0.09], nodes=["n2"] * 3, seeds=[3, 4, 5])
    found = contrast(a, b, of_loss=True)
    assert (word(found, LOSS), found.remarks) == ("worse", ("nodes differ",))
    assert word(contrast(a, b)) == "undetermined"


@pytest.mark.parametrize("nodes", ["nn", "nm"], ids=["one node", "nodes of their own"])
def test_arms_that_ran_in_blocks_differ_neither_by_a_drift_nor_by_their_nodes(nodes):
    rng = np.random.default_rng(5)
    missed = 0
    for _ in range(200):
        begins = np.arange(8.0)
        speeds = dict(zip("nm", 0.05 * rng.standard_normal(2), strict=True))
        logs = 0.002 * rng.standard_normal(8) + 0.01 * begins
        sides = [
            arm([x + speeds[node] for x in own], nodes=[node] * 4, begins=at)
            for node, own, at in zip(nodes, np.split(logs, 2), np.split(begins, 2), strict=True)
        ]
        found = contrast(*sides)
        assert not found.is_claim
        missed += abs(found.mean.value) > found.mean.half_width
    assert missed <= 20


def test_the_speed_of_a_node_cancels_though_the_arms_used_it_unequally_often():
    rng, held, widths = np.random.default_rng(0), 0, []
    nodes = [["n1", "n1", "n1", "n2", "n2"], ["n1", "n1", "n2", "n2", "n2"]]
    for _ in range(400):
        speed = dict(zip(("n1", "n2"), 0.05 * rng.standard_normal(2), strict=True))
        a, b = (
            arm([speed[n] + 0.005 * rng.standard_normal() for n in own], nodes=own) for own in nodes
        )
        found = contrast(a, b)
        ends = found.mean.estimate()
        assert found.is_claim
        held += ends.low <= 0 <= ends.high
        widths.append(ends.high - ends.low)
    assert 0.93 <= held / 400 <= 0.98
    assert np.median(widths) < 0.03


def test_two_single_runs_differ_or_cannot_be_told_apart_and_support_no_claim():
    a, b = arm([0.0]), arm([0.6])
    assert word(contrast(a, b, steps=single(0.6))) == "different"
    assert word(contrast(a, b, steps=single(0.001, error=0.01))) == "undetermined"
    # The whole interval is within the margin.
    assert word(contrast(a, b, steps=single(0.004))) == "same"
    losses = replace(single(0.004), further=(Mean(value=0.05, error=0.001, freedom=50.0),))
    assert word(losses, LOSS) == "undetermined"


def test_one_run_against_several_is_refused_and_two_a_side_are_too_few():
    assert word(contrast(arm([0.0]), arm([1.0, 1.0, 1.0]))) == "not compared"
    found = contrast(arm([0.0, 0.001]), arm([1.0, 1.001]))
    assert word(found) == "undetermined"
    assert "needs 3" in found.why


def test_arms_on_nodes_of_their_own_are_compared_with_an_allowance_for_the_nodes():
    base = arm([0.0, 0.001, -0.001], nodes="aaa")
    near = contrast(base, arm([0.03, 0.031, 0.029], nodes="bbb"))
    assert word(near) == "undetermined"
    assert "nodes differ" in near.remarks[0]
    assert word(contrast(base, arm([0.6, 0.601, 0.599], nodes="bbb"))) == "different"


def test_runs_of_shared_nodes_are_compared_within_each_node():
    nodes = {"a": 0.0, "b": 0.2, "c": -0.2}
    base = arm([*nodes.values()], nodes="abc")
    other = arm([value + 0.05 + 0.001 * n for n, value in enumerate(nodes.values())], nodes="abc")
    found = contrast(base, other)
    assert word(found) == "faster"
    assert found.mean.estimate().high - found.mean.estimate().low < 0.02


def test_repeats_that_share_a_node_which_the_others_lack_are_not_independent():
    base = arm(np.arange(5) / 1000, nodes="aaaaa")
    other = arm(0.1 + np.arange(5) / 1000, nodes="abcde")
    assert word(contrast(base, other)) == "undetermined"


def test_jobs_of_several_nodes_that_share_one_are_not_independent():
    base = arm([0.0, 0.001, -0.001], nodes="abc")
    shared = [frozenset({"s", own}) for own in "def"]
    other = [replace(one, nodes=own) for one, own in zip(arm([0.1] * 3), shared, strict=True)]
    assert word(contrast(base, other)) == "undetermined"
    apart = [
        replace(one, nodes=frozenset({*own, own})) for one, own in zip(other, "def", strict=True)
    ]
    assert word(contrast(base, apart)) == "faster"


def test_runs_on_nodes_that_are_not_known_say_so():
    found = contrast(arm([0.0, 0.001, -0.001]), arm([0.1, 0.101, 0.099]))
    assert (word(found), found.remarks) == ("faster", ("on nodes that are not recorded",))


def test_a_base_that_scatters_more_than_the_cells_stands_for_itself():
    rng, held = np.random.default_rng(2), []
    for _ in range(300):
        logs = 0.01 * rng.standard_normal((8, 3))
        logs[0] *= 5
        arms = [arm(cell) for cell in logs]
        for cell in arms[1:]:
            ends = contrast(arms[0], cell, scatter=scatter_of(arms)).mean.estimate()
            held.append(ends.low <= 0 <= ends.high)
    assert np.mean(held) > 0.91


@pytest.mark.parametrize("shared", [0.0, 0.02])
def test_all_cells_tell_how_repeats_scatter_and_whether_seeds_share_something(shared):
    """One of eight cells has 5 % less loss; three seeds scatter by 1 %, beside what they share."""
    rng, false, found, held = np.random.default_rng(2), 0, 0, []
    for _ in range(200):
        logs = shared * rng.standard_normal(3) + 0.01 * rng.standard_normal((8, 3))
        logs[-1] -= 0.05
        arms = [arm(cell, seeds=[0, 1, 2]) for cell in logs]
        scatter = scatter_of(arms, of_loss=True)
        made = [contrast(arms[0], one, of_loss=True, scatter=scatter) for one in arms[1:]]
        *others, last = judge([(one, LOSS) for one in made])
        found += last.word == "better"
        false += any(one.word in ("better", "worse") for one in others)
        held += [one.ratio.low <= 1 <= one.ratio.high for one in others]
    assert found / 200 > 0.75
    assert false / 200 <= 0.06
    assert np.mean(held) > 0.93


def test_an_evaluation_whose_sense_is_not_known_is_different_and_not_worse():
    assert Compared(of="val/accuracy").quantity.word(0.1) == "better"
    assert Compared(of="validation_gain").quantity.word(0.1) == "better"
    assert Compared(of="validation_loss").quantity.word(0.1) == "worse"
    assert Compared(of="sharpness").quantity.word(0.1) == "different"


def test_seeds_that_both_have_are_paired():
    offsets = [0.0, 0.1, -0.1]
    base = arm(offsets, seeds=[0, 1, 2])
    other = arm([value - 0.05 - 0.001 * n for n, value in enumerate(offsets)], seeds=[0, 1, 2])
    found = contrast(base, other, of_loss=True)
    assert (found.unit, word(found, LOSS)) == ("seed", "better")


def test_repeats_are_paired_by_pass_if_the_machine_drifts_and_not_otherwise():
    rng = np.random.default_rng(2)
    for drift, unit in ((0.03, "pass"), (0.0, "repeat")):
        units, held, found = [], 0, 0
        for _ in range(300):
            shared = drift * np.cumsum(rng.standard_normal(5))
            own = 0.005 * rng.standard_normal((2, 5))
            a, b = (
                arm(shared + own[n] + 0.01 * n, nodes="aaaaa", passes="12345") for n in range(2)
            )
            result = contrast(a, b)
            ends = result.mean.estimate()
            units.append(result.unit)
            held += ends.low <= 0.01 <= ends.high
            found += ends.low > 0
        assert np.mean([one == unit for one in units]) > 0.9
        assert held / 300 > 0.91
        assert found / 300 > 0.65


def test_curves_that_agree_at_the_end_only_are_not_the_same():
    logs = [0.0, 0.001, -0.001]
    base = arm(logs, seeds=[0, 1, 2], stretches=[(0.0, 0.0)] * 3)
    crossing = arm(logs, seeds=[0, 1, 2], stretches=[(0.1, 0.0)] * 3)
    assert word(contrast(base, base, of_loss=True), LOSS) == "same"
    assert word(contrast(base, crossing, of_loss=True), LOSS) == "undetermined"


def test_two_losses_that_differ_as_two_seeds_may_are_not_called_different():
    assert word(single(0.04), LOSS) == "undetermined"
    assert word(single(0.2), LOSS) == "different"


def test_holm_is_that_of_the_textbook():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_a_refusal_is_no_comparison_and_all_others_are_counted():
    found = [single(0.6), single(0.0, error=0.01), refused("other images")]
    verdicts = judge([(one, SPEED) for one in found])
    assert [one.word for one in verdicts] == ["different", "undetermined", "not compared"]
    assert {one.comparisons for one in verdicts} == {2}


def test_a_table_of_equal_arms_has_a_false_verdict_once_in_twenty():
    rng, false = np.random.default_rng(1), 0
    for _ in range(400):
        base, *others = (arm(0.01 * rng.standard_normal(3)) for _ in range(8))
        verdicts = judge([(contrast(base, other), SPEED) for other in others])
        false += any(one.word in ("faster", "slower") for one in verdicts)
    assert false / 400 <= 0.07
