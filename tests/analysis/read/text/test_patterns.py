"""Patterns for the lines of a text: those that a user types, and those that are proposed."""

import shlex

import pytest

from analysis.__main__ import main
from analysis.measure.rate import measure_rate
from tests.analysis.read.text.test_candidates import logs_of


def test_the_proposed_pattern_reads_what_it_says(tmp_path, capsys):
    noise = [f"Namespace(seed={n})" for n in range(3)]
    lines = [f"turn {3 * n} train {5 / n + n % 2:.4f} q {n % 5}" for n in range(1, 60)]
    (tmp_path / "x").write_text("\n".join([*noise, *lines]))
    assert main(["runs", str(tmp_path / "x")]) == 2
    error = capsys.readouterr().err
    assert "59 lines are like 'turn" in error
    assert "reads 59 of them" in error
    pattern = shlex.split(error.rpartition("--pattern ")[2])[0]
    [log] = logs_of(tmp_path / "x", "\n".join([*noise, *lines]), pattern=pattern)
    assert log.step.tolist() == list(range(3, 180, 3))
    assert len(log.values["loss"]) == 59


def test_a_pattern_is_one_of_lines_and_counts_those_that_it_reads(tmp_path):
    text = "\n".join(f"{n} {1 / n:.5f}" for n in range(1, 50)) + "\nend\n"
    [log] = logs_of(tmp_path / "x", text, pattern=r"^(?P<step>\d+) (?P<loss>\S+)$")
    assert len(log) == 49
    assert any("reads 49 of 50 lines" in remark for remark in log.remarks)


@pytest.mark.parametrize("group", ["interval_s", "elapsed_s", "stamp"])
def test_groups_of_a_pattern_are_clocks(group, tmp_path):
    shown = {
        "interval_s": lambda n: "30.0",
        "elapsed_s": lambda n: f"{30 * n}",
        "stamp": lambda n: f"{(23 + n // 120) % 24:02d}:{n // 2 % 60:02d}:{30 * (n % 2):02d}",
    }[group]
    text = "\n".join(f"@{shown(n)} #{10 * n} ={1 / n:.4f}" for n in range(1, 240))
    pattern = rf"@(?P<{group}>\S+) #(?P<step>\d+) =(?P<loss>\S+)"
    [log] = logs_of(tmp_path / "x", text, pattern=pattern)
    rate = measure_rate(log, clock=None).rate
    assert rate is not None
    assert rate.value == pytest.approx(1 / 3, rel=0.02)
