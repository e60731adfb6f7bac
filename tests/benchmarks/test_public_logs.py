"""The examination of readings tells right, wrong, refused and unread apart, on made-up logs."""

from pathlib import Path

import pytest

from benchmarks.public_logs import (
    FACTS,
    NAMES,
    Reading,
    examine,
    judge,
    main,
    proposal,
    read_facts,
)

HEADER = "set\trepository\tpath\tkind\tquantity\ttruth\ttolerance\thow\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [f"{step},{10 / step}" for step in range(10, 110, 10)]
    tmp_path = tmp_path / "ann" / "made-up"
    tmp_path.mkdir(parents=True)
    (tmp_path / "log.csv").write_text("step,loss\n" + "\n".join(rows) + "\n")
    (tmp_path / "notes.txt").write_text("what we did\nand why\n")
    return tmp_path.parents[1]


def outcomes(folder: Path, *facts: str) -> list[str]:
    source = ["open", "ann/made-up@0123456789"]
    rows = ["\t".join([*source, *fact.split(), "by eye"]) for fact in facts]
    (folder / "facts.tsv").write_text("\n".join([HEADER.strip(), *rows, ""]).replace("_", " "))
    found = examine(folder, read_facts(folder / "facts.tsv"))
    return [outcome for _, outcome, _, _ in found]


def test_a_value_within_tolerance_is_right_and_another_one_wrong_and_certain(folder: Path) -> None:
    found = outcomes(
        folder,
        "log.csv csv last 100_steps 0",
        "log.csv csv last 40_epochs|101_steps 1",
        "log.csv csv loss 0.1005 1%",
        "log.csv csv loss 0.102 1%",
        "log.csv csv last 100_epochs 0",
    )
    assert found == ["right", "right", "right", "wrong and certain", "wrong and certain"]


def test_no_value_is_refused_and_right_if_nothing_may_be_claimed(folder: Path) -> None:
    found = outcomes(
        folder, "log.csv csv rate 1_steps/s 5%", "log.csv csv rate none 0", "log.csv csv runs 1 0"
    )
    assert found == ["refused", "right", "right"]


def test_a_log_without_a_run_is_unread(folder: Path) -> None:
    assert outcomes(folder, "notes.txt prose loss 1 1%") == ["unread"]


def test_a_wrong_rate_is_certain_only_with_an_interval(folder: Path) -> None:
    outcomes(folder, "log.csv csv rate 2_steps/s 1%")
    fact = read_facts(folder / "facts.tsv")[0]
    bare = {"unit": "step", "steps_per_s": 3.0}
    certain = bare | {"steps_per_s_low": 2.9, "steps_per_s_high": 3.1}
    wide = bare | {"steps_per_s_low": 1.9, "steps_per_s_high": 3.1}
    row = {"run": "log.csv", "step": 100}
    found = [judge(fact, Reading(rows=(row,), rates=(rate,))) for rate in (bare, certain, wide)]
    assert found == ["refused", "wrong and certain", "right"]
    doubted = Reading(rows=(row,), rates=(certain,), remarks=("the time has two readings",))
    assert judge(fact, doubted) == "refused"


def test_a_proposed_pattern_is_read_as_a_shell_reads_it() -> None:
    said = ["runs: log: no run in it", r"""try --pattern 'n (?P<step>\d+) it'\''s (?P<loss>\S+)'"""]
    assert proposal(said) == r"n (?P<step>\d+) it's (?P<loss>\S+)"
    assert proposal(["no run in it"]) is None


def test_the_exit_code_and_table_show_what_is_wrong(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes(
        folder,
        "log.csv csv last 100_steps 0",
        "log.csv other loss 5 1%",
        "gone.csv csv last 100_steps 0",
    )
    facts = ["--facts", str(folder / "facts.tsv")]
    assert main([str(folder), *facts, "--markdown", "--details"]) == 1
    out = capsys.readouterr().out
    assert f"{folder} lacks 1 of the logs, such as ann/made-up/gone.csv" in out
    assert "open: 2 facts of 1 logs of 2 kinds: 1 right, 1 wrong and certain, 0 refused" in out
    assert "| csv | 1 | 1 |  |  |  |" in out
    assert "wrong and certain: ann/made-up/log.csv loss: ((5.0, ''),)" in out


def test_the_table_of_facts_can_be_read() -> None:
    facts = read_facts(FACTS)
    assert len({fact.path for fact in facts}) >= 200
    assert len({fact.kind for fact in facts}) >= 100
    assert {fact.quantity for fact in facts} <= set(NAMES)
