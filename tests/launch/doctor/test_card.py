"""`ditbench card`: the table against the data sheet, and jobs that measure nothing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from configs.errors import ConfigError
from launch.__main__ import main
from launch.doctor.card import _keep, make_cards, remark, rows
from runs.cards import Card, Measured, read_card

Command = Callable[[str, str], Path]


def product(tflop_s: float) -> Measured:
    return Measured(name="product", shape=[1000, 1000, 1000], precision="bf16",
                    value=6e9 / tflop_s / 1e12, spread=0.02)  # fmt: skip


def card(*measured: Measured, **facts: float) -> Card:
    return Card(device="NVIDIA A40", time=1.0, versions={}, facts=facts, measured=list(measured))


def test_the_best_rate_stands_beside_the_data_sheet_with_the_limit() -> None:
    copy = Measured(name="copy", shape=[10**9], value=2 / 600, spread=0.01)
    found = card(product(50.0), product(106.3), copy, power_limit_w=200, sm_mhz=1100,
                 max_sm_mhz=1740)  # fmt: skip
    table = {row["measured"]: row for row in rows(found)}
    assert table["product bf16"]["rate"] == pytest.approx(106.3)
    assert table["product bf16"]["sheet"] == 149.7
    assert table["copy"]["share"] == pytest.approx(600 / 696)
    assert remark(found) == (
        "NVIDIA A40 reaches 71% of its data sheet: power limit 200 W, 1100 of 1740 MHz under load"
    )
    driven = found.model_copy(update={"versions": {"driver": "580.65"}})
    assert remark(driven) == f"{remark(found)}, driver 580.65"


def test_a_new_card_keeps_the_sums_over_other_nodes(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    far, near = (
        Measured(name="all_reduce", shape=[26_214_400, 2 * n, n], value=0.01 * n, spread=0.1)
        for n in (2, 1)
    )
    for number, one in enumerate((card(product(100.0), far), card(product(90.0), near))):
        (file := tmp_path / f"{number}.json").write_text(one.model_dump_json())
        _keep(file)
    kept = read_card(site / ".cards" / "a40.json")
    assert kept.of("all_reduce") == [near, far]
    assert kept.of("product", "bf16") == [product(90.0)]
    assert "all_reduce 4 ranks, 2 nodes" in capsys.readouterr().out


def measure(**changes: Any) -> int:
    return make_cards(**({"partition": None, "gpu": None, "nodes": 1, "here": False} | changes))


def test_a_type_that_is_not_listed_is_refused_with_those_that_are(command: Command) -> None:
    command("sinfo", "printf 'n1|gpu:a40:2\\n'")
    with pytest.raises(ConfigError, match="sinfo lists a40 here, not a100; or measure with --here"):
        measure(gpu="a100")


def test_a_refused_job_and_a_failed_one_are_a_line_each(
    site: Path, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    command("sinfo", "printf 'n1|gpu:a40:2\\nn2|gpu:a100:4\\n'")
    command("sbatch", """\
if [[ "$*" == *a100* ]]; then echo "Invalid account" >&2; exit 1; fi
for word; do [[ $word != --chdir=* ]] || echo "no driver on n1" >"${word#--chdir=}/card.out"; done
echo 7""")  # fmt: skip
    command("squeue", "echo '7|FAILED||||None'")
    command("scancel", "exit 0")
    assert measure() == 1
    said = capsys.readouterr().err.splitlines()
    assert "a40: not measured: no driver on n1" in said
    assert [line for line in said if line.startswith("a100: not measured:")] == [
        "a100: not measured: sbatch refuses the doctor's job card: Invalid account"
    ]
    assert list(site.iterdir()) == []


def test_the_fit_needs_runs(site: Path, capfd: pytest.CaptureFixture[str]) -> None:
    site.mkdir()
    assert main(["card", "--fit"]) == 2
    assert "0 finished runs of a DiT" in capfd.readouterr().err


def test_a_card_of_this_machine_is_kept_and_shown(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(*words: str | Path) -> int:
        Path(words[1]).write_text(json.dumps(card(product(100.0)).model_dump()))
        return 0

    monkeypatch.setattr("launch.doctor.card.train_card", measured)
    assert main(["card", "--here"]) == 0
    assert str(site / ".cards" / "a40.json") in capsys.readouterr().out
