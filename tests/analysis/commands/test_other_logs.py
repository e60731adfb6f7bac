"""Commands on logs of other trainers: how they compare."""

import os
import re

import numpy as np
import pytest

from analysis.__main__ import main
from tests.analysis import foreign_logs as write
from tests.analysis.foreign_logs import FORMATS, synthetic_log
from tests.analysis.synthetic_runs import SyntheticRun, generate_run


def test_a_mixed_folder_gives_one_table_of_ours_and_theirs(tmp_path, asked):
    generate_run(tmp_path / "ours", SyntheticRun())
    (tmp_path / "theirs").mkdir()
    for name, (writer, _) in FORMATS.items():
        (tmp_path / "theirs" / name.replace(" ", "")).write_bytes(writer(synthetic_log(n=20)))
    (tmp_path / "model.safetensors").write_bytes(bytes(range(256)) * 100)
    (tmp_path / "notes.md").write_text("step by step")
    (tmp_path / "config.yaml").write_text("lr: 1e-4")
    found = asked("runs", tmp_path)
    assert len(found) == 1 + len(FORMATS)
    assert {row["format"] for row in found} >= {"ditbench", "key: value", "tqdm", "MLPerf"}


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (write.kohya, "bar clock against wall clock"),
        (write.lightning, "no time was read of b"),
    ],
)
def test_logs_without_a_clock_in_common_are_not_compared(tmp_path, asked, other, why):
    (tmp_path / "a").write_bytes(write.dit(synthetic_log()))
    (tmp_path / "b").write_bytes(other(synthetic_log()))
    found = asked("speed", tmp_path / "a", tmp_path / "b")[1]
    assert found["why"] == why
    assert "ratio" not in found


def test_ours_and_theirs_are_compared_by_wall_time(tmp_path, asked):
    generate_run(tmp_path / "a", SyntheticRun(steps_per_s=0.5))
    (tmp_path / "b").write_bytes(write.dit(synthetic_log()))
    found = asked("speed", tmp_path / "a", tmp_path / "b")
    assert [row["clock"] for row in found] == ["wall", "wall"]
    assert found[1]["ratio"] == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("stamped", [True, False])
def test_study_e_is_14_percent_and_its_configs_unknown(stamped, tmp_path, capsys):
    for name, words, mfu in (("eager", 1710, 23.5), ("compiled", 1955, 26.9)):
        seconds = 4 * 2048 / words * np.arange(1, 13)
        lines = [
            (write._moment(t, digits=3) + " - root - INFO - " if stamped else "")
            + f"step: {s}  loss:  3.9053  memory: 36.20GiB(81.50%)  wps: {words:,}  mfu: {mfu}%"
            for s, t in enumerate(seconds, start=110)
        ]
        (tmp_path / name).write_text("\n".join(lines))
    assert main(["speed", str(tmp_path / "eager"), str(tmp_path / "compiled")]) == 0
    output = capsys.readouterr().out
    assert re.search(r"1\.14\d*x", output)
    assert "configs unknown" in output


@pytest.mark.parametrize("data", [b"", bytes(1000), bytes(range(256)) * 50, b"# notes\n"])
@pytest.mark.parametrize("command", ["runs", "speed", "report"])
def test_every_command_refuses_a_file_without_a_run(command, data, tmp_path, capsys):
    (tmp_path / "x").write_bytes(data)
    out = ["--out", str(tmp_path / "r.html")] if command == "report" else []
    assert main([command, str(tmp_path / "x"), *out]) == 2
    assert "no run in it" in capsys.readouterr().err


def test_a_pipe_is_not_waited_for(tmp_path, capsys):
    os.mkfifo(tmp_path / "x")
    assert main(["runs", str(tmp_path / "x")]) == 2
    assert "neither a file nor a folder" in capsys.readouterr().err


def test_steps_of_unlike_size_are_compared_by_their_tokens(tmp_path, asked):
    noise = np.random.default_rng(0).normal(1, 0.02, 100)
    for name, tokens, seconds in (("a", 4096, 10), ("b", 2048, 5)):
        times = np.cumsum(seconds * noise)
        rows = [f"{20 * k},{20 * k * tokens},{t},2.5" for k, t in enumerate(times, start=1)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["step,tokens,elapsed_s,loss", *rows]))
    found = asked("speed", *(tmp_path / f"{name}.csv" for name in "ab"))[1]
    assert found["ratio"] == pytest.approx(1, abs=0.01)
    assert "in tokens/s" in found["verdict"]
