"""Damaged and hostile files cause no crash, no unbounded work and no invented number."""

import random
import time
from pathlib import Path

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.read.attempts import attempts
from analysis.read.find import read_logs
from analysis.read.other_logs import read_file
from tests.analysis import foreign_logs as write
from tests.analysis.foreign_logs import FORMATS, synthetic_log
from tests.analysis.synthetic_runs import SyntheticRun, generate_run

HOSTILE = [
    b"\x00" * 40, b"\xff\xfe" * 20, b"\x1b]0;title\x07\x1b[31m", b"<script>alert(1)</script>",
    b"=cmd|' /C calc'!A0", b"9" * 400, b"1e999", b"nan", b"-inf", b"\r\r\r\n", b"[" * 3000,
    b"{'loss': " + b"(" * 500 + b"}", b":::MLLOG {" + b'{"a":' * 2000,
    b"| 5/10 [99:99:99<00:01, 0.00s/it, loss=1]", b"2023-99-99 99:99:99",
    b"(step=-1) Train Loss: x", b"step: 99999999999999999999", b"\xe2\x80\xae", b"step,loss\n",
    b'"', b"\x1f\x8b\x08",
]  # fmt: skip

QUESTIONS = [
    ["runs"], ["runs", "--detect"], ["speed"], ["loss"],
    ["loss", "--by", "wall"], ["loss", "--exact"], ["cells"],
    ["cost"], ["cells", "--ablation"], ["audit"], ["target", "--target", "loss<=1"],
]  # fmt: skip


MUTATIONS = ("cut", "copy", "flip", "digits", "letters", "nested", "one line", "hostile", "end")


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Return the bytes with one to six cuts, copies, flips or insertions of hostile text."""
    digits, letters = b"0123456789.,:", b"abcdefghijklmnopqrstuvwxyz /_"
    for _ in range(rng.randint(1, 6)):
        at, to = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        to = min(to, at + 400)
        piece = data[at:to]
        data = {
            "cut": lambda at=at, to=to, data=data: data[:at] + data[to:],
            "copy": lambda at=at, piece=piece, data=data: data[:at] + piece + data[at:],
            "flip": lambda at=at, to=to, data=data: (
                data[:at]
                + bytes(b ^ (1 << rng.randrange(8)) for b in data[at:to][:9])
                + data[at + 9 :]
            ),
            "digits": lambda at=at, to=to, data=data: (
                data[:at] + bytes(rng.choices(digits, k=to - at)) + data[to:]
            ),
            "letters": lambda at=at, to=to, data=data: (
                data[:at] + bytes(rng.choices(letters, k=to - at)) + data[to:]
            ),
            "nested": lambda at=at, data=data: data[:at] + b"[{(" * rng.randrange(200) + data[at:],
            "one line": lambda at=at, to=to, piece=piece, data=data: (
                data[:at] + piece.replace(b"\n", b" ") + data[to:]
            ),
            "hostile": lambda at=at, data=data: data[:at] + rng.choice(HOSTILE) + data[at:],
            "end": lambda at=at, data=data: data[: max(at, 1)],
        }[rng.choice(MUTATIONS)]() or b"x"
    return data


def survive(count: int, tmp_path, capsys, *, seed: int) -> None:
    rng = random.Random(seed)
    # Few lines are read one by one, many at once.
    originals = [writer(synthetic_log(n=n)) for writer, _ in FORMATS.values() for n in (25, 90)]
    for number in range(count):
        path = tmp_path / f"{number % 2}"
        path.write_bytes(mutate(rng.choice(originals), rng))
        pair = [str(path), str(tmp_path / "1")] if number else [str(path)]
        assert main([*rng.choice(QUESTIONS), *pair]) in (0, 1, 2)
        output = capsys.readouterr()
        assert all(c.isprintable() or c == "\n" for c in output.out + output.err)


def test_mutated_logs_are_survived_in_a_small_draw(tmp_path, capsys):
    survive(120, tmp_path, capsys, seed=0)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_ten_thousand_mutated_logs_are_survived(seed, tmp_path, capsys):
    survive(10_000, tmp_path, capsys, seed=seed)


def mutated_runs(count: int, tmp_path, capsys, *, seed: int) -> None:
    rng = random.Random(seed)
    good, bad = (
        generate_run(tmp_path / name, SyntheticRun(intervals=25)) for name in ("good", "bad")
    )
    files = {name: (bad / name).read_bytes() for name in
             ("metrics.jsonl", "config.yaml", "manifest.json")}  # fmt: skip
    for _ in range(count):
        name = rng.choice(["metrics.jsonl", "metrics.jsonl", "config.yaml", "manifest.json"])
        (bad / name).write_bytes(mutate(files[name], rng))
        assert main([*rng.choice(QUESTIONS), str(good), str(bad)]) in (0, 1, 2)
        output = capsys.readouterr()
        assert all(c.isprintable() or c == "\n" for c in output.out + output.err)
        (bad / name).write_bytes(files[name])


def test_mutated_run_folders_are_survived_in_a_small_draw(tmp_path, capsys):
    mutated_runs(60, tmp_path, capsys, seed=2)


@pytest.mark.long
def test_a_thousand_mutated_run_folders_are_survived(tmp_path, capsys):
    mutated_runs(1000, tmp_path, capsys, seed=3)


def test_a_line_of_a_megabyte_costs_nothing_but_itself(tmp_path):
    lines = write.dit(synthetic_log(n=30)).split(b"\n")
    lines.insert(10, b"x" * 1_000_000)
    lines.insert(20, b"| 1/2 [" * 100_000)
    (tmp_path / "x").write_bytes(b"\n".join(lines))
    [log] = read_logs([str(tmp_path / "x")])
    assert len(log) == 30
    assert log.line[-1] == len(lines)


def test_a_file_without_an_end_of_line_is_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("analysis.read.text.pieces.PIECE", 1000)
    monkeypatch.setattr("analysis.read.text.pieces.LONGEST_LINE", 3000)
    (tmp_path / "x").write_bytes(write.ai_toolkit(synthetic_log(n=300)) + b"y" * 10_000)
    [log] = read_logs([str(tmp_path / "x")])
    assert len(log) == 300


def test_an_event_file_is_read_up_to_its_first_damaged_record(tmp_path):
    data = bytearray(write.tensorboard(synthetic_log(n=50)))
    data[len(data) // 2] ^= 4
    (tmp_path / "x").write_bytes(data)
    [log] = read_logs([str(tmp_path / "x")])
    assert log.column("loss") == pytest.approx(synthetic_log(n=50).loss[: len(log)])
    assert 20 < len(log) < 30
    assert "is damaged" in log.remarks[0]


@pytest.mark.parametrize("words", ["x" * 1000, "a1" * 500, "a" * 60 + " " * 900, "a (b) " * 160])
def test_the_time_of_long_lines_grows_with_their_number_alone(tmp_path: Path, words: str) -> None:
    # Each part of a word was tried as a name: 1 MB took four minutes.
    path = tmp_path / "long.log"
    path.write_text("".join(f"step {step} loss 2.0 {words}\n" for step in range(1, 401)))
    began = time.monotonic()
    (log,) = read_file(path, name="x")
    assert (len(log), log.column("loss").tolist()) == (400, [2.0] * 400)
    assert time.monotonic() - began < 20


def test_half_of_a_character_is_no_number(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"step": {s}, "loss": {s}.5, "\\ud800": 1}}\n' for s in range(9)))
    path.write_text(path.read_text().replace("3.5", '"\\ud800"'))
    (log,) = read_file(path, name="x")
    assert len(log) >= 8
    assert main(["speed", str(path)]) == 0


def test_a_loss_that_is_not_finite_is_no_end_of_a_run(tmp_path: Path) -> None:
    entries = [
        f'{{"time_ms": {1000 * n}, "key": "tracked_stats", "value": {{"train_loss": '
        f'{"NaN" if n > 50 else 1.0}}}, "metadata": {{"samples_count": {32 * n}}}}}'
        for n in range(1, 60)
    ]
    start = '{"key": "run_start", "value": null, "time_ms": 5}'
    path = tmp_path / "x"
    path.write_text("\n".join(f"0: :::MLLOG {entry}" for entry in (start, *entries)))
    assert main(["speed", str(path)]) == 0


def test_the_time_of_restarts_grows_with_their_number_alone() -> None:
    """Steps that rise far and then fall by one, again and again."""

    def seconds(falls: int) -> float:
        step = np.concatenate([np.arange(20_000), np.arange(19_990, 19_990 - falls, -1)])
        begun = time.process_time()
        attempts(step, np.full(len(step), np.nan))
        return time.process_time() - begun

    few, many = min(seconds(200) for _ in range(3)), min(seconds(10_000) for _ in range(3))
    assert many < 5 * few
