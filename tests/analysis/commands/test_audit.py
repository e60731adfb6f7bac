"""`audit` recomputes claims: it agrees, disagrees, or says what it would need."""

import pytest

from analysis.__main__ import main
from analysis.commands.audit import parse_value
from tests.analysis.synthetic_runs import SyntheticRun


@pytest.fixture
def audit(tmp_path, said):
    """The exit code and claims of `audit` on a file of this text."""

    def run(text: str):
        (tmp_path / "claims.yaml").write_text(text)
        code, found, _ = said("audit", tmp_path / "claims.yaml")
        return code, found["claims"]

    return run


@pytest.fixture
def runs(plant):
    compiled = SyntheticRun(steps_per_s=4.56, seed=1, overrides=("train.compile=true",))
    plant(eager=SyntheticRun(), compiled=compiled, short=SyntheticRun(intervals=5))


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    ("value", "verdict"),
    [("14 %", "agrees"), ("1.14", "agrees"), ("17 %", "disagrees"), ("1.10", "disagrees")],
)
def test_a_claimed_speedup_is_recomputed(audit, value, verdict):
    code, [found] = audit(
        f"- text: faster\n  quantity: speedup\n  runs: [eager, compiled]\n  value: {value}\n"
    )
    assert found["verdict"] == verdict
    assert found["recomputed"] == pytest.approx(1.14, abs=0.01)
    assert "only this differs: train.compile: false -> true" in found["why"]
    assert found["recomputed_low"] <= found["recomputed"] <= found["recomputed_high"]
    assert code == (1 if verdict == "disagrees" else 0)


@pytest.mark.usefixtures("runs")
def test_too_few_intervals_decide_nothing_and_say_so(audit):
    code, [found] = audit("- {quantity: speedup, runs: [eager, short], value: 2}")
    assert (code, found["verdict"]) == (0, "undecidable")
    assert "too few records" in found["why"]


@pytest.mark.usefixtures("runs")
def test_each_quantity_of_a_run_is_recomputed(audit):
    claims = [
        "{quantity: steps_per_s, runs: eager, value: 4.0}",
        "{quantity: images_per_s, runs: eager, value: 256, clock: train}",
        "{quantity: step_s, runs: eager, value: 0.25}",
        "{quantity: loss, runs: eager, value: 0.286}",
        "{quantity: loss_ratio, runs: [eager, compiled], value: 1.0}",
    ]
    _, found = audit("\n".join(f"- {claim}" for claim in claims))
    assert [one["verdict"] for one in found] == ["agrees"] * 5


def test_a_loss_that_is_not_finite_at_the_end_is_undecidable_and_in_no_table(
    audit, asked, tmp_path
):
    lines = [f"step {n} loss {'nan' if n > 60 else 0.5} time {n}.0\n" for n in range(1, 101)]
    (tmp_path / "a.log").write_text("".join(lines))
    _, [found] = audit("- {quantity: loss, runs: a.log, value: 0.5}")
    assert found["verdict"] == "undecidable"
    assert "not finite from step" in found["why"]
    assert "loss" not in asked("runs", tmp_path / "a.log")[0]


@pytest.mark.usefixtures("runs")
def test_a_claim_about_a_missing_run_is_undecidable(audit):
    _, [found] = audit("claims:\n - {quantity: loss, runs: nowhere, value: 1}")
    assert found["verdict"] == "undecidable"
    assert "no such file" in found["why"]


@pytest.mark.parametrize(
    ("text", "value", "half"),
    [("1.8x", 1.8, 0.05), ("17 %", 1.17, 0.005), ("1,710", 1710, 0.5), ("1e-4", 1e-4, 5e-5)],
)
def test_half_of_the_last_printed_digit_is_left_open(text, value, half):
    found = parse_value(text, quantity="speedup")
    assert found == (pytest.approx(value), pytest.approx(half))


@pytest.mark.parametrize(
    "text",
    ["", "5", "[1]", "- {quantity: x, runs: a, value: 1}", "- {quantity: loss, runs: a, value: z}",
     "- {quantity: speedup, runs: a, value: 1}", "- {quantity: loss, runs: a}", ": : :",
     "- {quantity: loss, runs: a, value: true}", "- {quantity: loss, runs: a, value: 1, clock: x}"],
)  # fmt: skip
def test_a_file_that_holds_no_claims_is_misuse(text, tmp_path, capsys):
    (tmp_path / "claims.yaml").write_text(text)
    assert main(["audit", str(tmp_path / "claims.yaml")]) == 2
    assert capsys.readouterr().err.startswith("analysis audit: ")
