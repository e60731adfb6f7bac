"""The benchmark of the analysis fails commands that are wrong, and asks the real ones rightly."""

import math
from pathlib import Path

import numpy as np

from benchmarks.analysis_coverage.__main__ import scenarios
from benchmarks.analysis_coverage.harness import Ask, run_scenario
from benchmarks.analysis_coverage.scenario import Case, Rng, Scenario, Truth
from benchmarks.analysis_coverage.verdicts import Answer, ask

SD = 0.01


def planted(ratio: float) -> Scenario:
    """A scenario whose case passes a ratio, drawn about the true one, to a fake command."""

    def make(rng: Rng, folder: Path) -> Case:
        observed = ratio * math.exp(SD * rng.standard_normal())
        truth = Truth(value=ratio, planted=ratio != 1, oracle=ratio != 1)
        return Case(argv=[str(observed)], truths={"": truth})

    return Scenario(topic="fake", name="fake", kind="speed", make=make, draws=300)


def command(*, width: float = 1.0, word: str | None = None) -> Ask:
    """A command whose intervals are `width` times as wide as they should be."""

    def call(argv: list[str]) -> Answer:
        ratio, half = float(argv[0]), 1.96 * width * SD
        low, high = ratio * math.exp(-half), ratio * math.exp(half)
        claim = "undetermined" if low <= 1 <= high else "faster" if low > 1 else "slower"
        row = {"run": "b", "word": word or claim, "ratio": ratio, "low": low, "high": high}
        return Answer(payload=[{"run": "a"}, row | {"verdict": ""}], code=0, remarks="")

    return call


def failures(ratio: float, fake: Ask) -> list[str]:
    return run_scenario(planted(ratio), command=fake).tally.failures()


def test_a_command_whose_intervals_are_right_passes() -> None:
    assert failures(1.0, command()) == failures(1.1, command()) == []


def test_intervals_too_narrow_fail_on_coverage_and_on_false_verdicts() -> None:
    assert failures(1.0, command(width=0.5)) == ["coverage", "false"]
    assert failures(1.1, command(width=0.5)) == ["coverage"]


def test_silence_fails_on_power_if_the_best_test_finds_the_difference() -> None:
    assert failures(1.1, command(word="undetermined")) == ["power"]
    assert failures(1.0, command(word="undetermined")) == []


def test_the_word_same_is_false_for_arms_that_differ() -> None:
    assert failures(1.1, command(word="same")) == ["false", "power"]
    assert failures(1.0, command(word="same")) == []


def test_a_command_that_ends_with_a_bug_fails() -> None:
    broken = Answer(payload=None, code=2, remarks="unexpected error, a bug in ditbench: KeyError")
    assert "crashes" in failures(1.0, lambda argv: broken)


def test_a_row_that_speaks_of_these_runs_is_held_against_these_runs() -> None:
    def make(rng: Rng, folder: Path) -> Case:
        return Case(argv=[], truths={"": Truth(value=1.0, of_these=1.05)})

    def call(sentence: str) -> Ask:
        row = {"run": "b", "word": "different", "ratio": 1.05, "low": 1.04, "high": 1.06}
        return lambda argv: Answer(payload=[{}, row | {"verdict": sentence}], code=0, remarks="")

    one = Scenario(topic="fake", name="fake", kind="speed", make=make, draws=100)
    assert run_scenario(one, command=call("b is 1.05x (these two runs)")).tally.failures() == []
    assert run_scenario(one, command=call("b is 1.05x")).tally.failures() == ["coverage", "false"]


def test_every_kind_of_scenario_gets_an_answer_without_a_bug(tmp_path: Path) -> None:
    first = {scenario.kind: scenario for scenario in scenarios()}
    for number, scenario in enumerate(first.values()):
        case = scenario.make(np.random.default_rng(0), tmp_path / str(number))
        answer = ask(case.argv)
        assert not answer.is_bug, answer.remarks
        assert answer.payload is not None, (scenario.name, answer.remarks)


def test_there_are_150_scenarios_with_names_of_their_own() -> None:
    names = {(one.topic, one.name) for one in scenarios()}
    assert len(names) == len(scenarios()) >= 150
