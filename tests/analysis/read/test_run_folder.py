"""Bad input gets a clear line and an exit code, never a traceback; hostile text stays text."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import analysis.__main__ as command_line
from analysis.__main__ import main
from tests.analysis.synthetic_runs import SyntheticRun, generate_run

ROOT = Path(__file__).resolve().parents[3]
COMMANDS = ["runs", "speed", "loss"]
VIEWS = [f"{name} --{view}" for name, views in command_line.VIEWS.items() for view in views]
ALL = [*command_line.COMMANDS, *VIEWS]


@pytest.mark.parametrize("command", ALL)
def test_a_missing_path_is_misuse(command, tmp_path, capsys):
    more = {
        "target": ["--target", "loss<=1"],
        "target --critical-batch": ["--target", "loss<=1"],
        "archive": ["--out", str(tmp_path / "x.tar.xz")],
        "export --figure": ["--out", str(tmp_path / "x.pdf")],
        "export": ["--to", "csv", "--out", str(tmp_path / "x.csv")],
    }
    words = [*command.split(), *(["loss"] if command == "export --figure" else [])]
    assert main([*words, str(tmp_path / "nowhere"), *more.get(command, [])]) == 2
    output = capsys.readouterr()
    assert output.err.startswith(f"analysis {words[0]}: {tmp_path}/nowhere: no such file")
    assert output.err.count("\n") == 1
    assert output.out == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_without_a_run_is_misuse(command, tmp_path, capsys):
    assert main([command, str(tmp_path)]) == 2
    assert "no run in it" in capsys.readouterr().err


def test_loss_of_one_run_is_misuse(tmp_path, capsys):
    assert main(["loss", str(generate_run(tmp_path / "a", SyntheticRun()))]) == 2
    assert "compares at least two" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["speed", "loss"])
@pytest.mark.parametrize("file", ["config.yaml", "manifest.json"])
def test_a_damaged_file_is_named(command, file, tmp_path, capsys):
    good, bad = (
        generate_run(tmp_path / "a", SyntheticRun()),
        generate_run(tmp_path / "b", SyntheticRun()),
    )
    (bad / file).write_bytes(b"\x00\xff{[")
    assert main([command, str(good), str(bad)]) == 2
    assert f"b/{file}" in capsys.readouterr().err


ODD = [None, "\x1b[31m", {"a": {"b": []}}, float("nan")]


@pytest.mark.parametrize("odd", ODD)
def test_facts_and_keys_of_odd_types_are_survived(odd, tmp_path, capsys):
    good, bad = generate_run(tmp_path / "a", SyntheticRun(intervals=20)), tmp_path / "b"
    for name in ("attempt", "placement", "ranks", "commit", "versions", "dtypes"):
        shutil.rmtree(bad, ignore_errors=True)
        generate_run(bad, SyntheticRun(intervals=20, resume_at=10))
        (bad / "attempts" / "002").mkdir()
        manifest = json.loads((bad / "manifest.json").read_text())
        manifest["attempts"][1][name] = [{"node": odd, "gpu": odd}] if name == "placement" else odd
        (bad / "manifest.json").write_text(json.dumps(manifest))
        for command in COMMANDS:
            assert main([command, str(good), str(bad)]) in (0, 1, 2)
    for text in (f"kind: {json.dumps(odd)}", f"train: {json.dumps(odd)}"):
        (bad / "config.yaml").write_text(text)
        for command in (*COMMANDS, "cost", "cells --ablation"):
            assert main([*command.split(), str(good), str(bad)]) in (0, 1, 2)


def test_runs_shows_a_damaged_run_beside_the_others(tmp_path, capsys):
    generate_run(tmp_path / "a", SyntheticRun())
    (generate_run(tmp_path / "b", SyntheticRun()) / "config.yaml").write_text(": : :")
    assert main(["runs", str(tmp_path), "--json"]) == 1
    output = capsys.readouterr()
    assert [row["state"] for row in json.loads(output.out)] == ["done", "unreadable"]
    assert "b/config.yaml" in output.err


def test_lines_that_are_no_records_are_passed_over_and_counted(tmp_path, capsys):
    clean, dirty = (
        generate_run(tmp_path / "a", SyntheticRun()),
        generate_run(tmp_path / "b", SyntheticRun()),
    )
    rubbish = [
        "not json", "[1, 2]", "null", '{"step": 5}', '{"time": "x", "attempt": 1, "step": 1}',
        '{"time": 1.0, "attempt": 1, "step": 1e400}', '{"time": NaN, "attempt": 1}',
        '{"time": 1.0, "attempt": 1, "step": true, "loss": 1}', "[" * 100_000, "\x00\x1b[31m",
        '{"time": 1.0, "attempt": 1, "event": ["started"]}',
        '{"time": 1.0, "attempt": 1, "step": ' + "9" * 40 + "}",
    ]  # fmt: skip
    with (dirty / "metrics.jsonl").open("a") as file:
        file.write("\n".join(rubbish) + '\n{"time": 17000.0, "attempt": 1}\n{"time": 17000')
    assert main(["loss", str(clean), str(dirty), "--exact"]) == 0
    assert "b/metrics.jsonl: 12 lines are no records" in capsys.readouterr().err


def test_values_that_are_no_numbers_are_absent(tmp_path, capsys):
    run = generate_run(tmp_path / "a", SyntheticRun(intervals=20))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        if "loss" in line:
            line |= {"loss": ["x"], "train_s": "fast", "images": {}}
    (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert main(["speed", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["clock"] == "wall"


@pytest.mark.parametrize("flag", [[], ["--json"], ["--csv"]])
@pytest.mark.parametrize("command", COMMANDS)
def test_hostile_names_are_inert_on_a_terminal(command, flag, tmp_path, capsys):
    names = ["\x1b]0;owned\x07", "=cmd|' /C calc'!A0", "\u202egnp.exe\n"]
    folders = [str(generate_run(tmp_path / name, SyntheticRun(intervals=20))) for name in names]
    main([command, *folders, *flag])
    output = capsys.readouterr()
    for text in (output.out, output.err):
        assert all(c.isprintable() or c == "\n" for c in text)


def test_help_answers_without_importing_numpy_or_torch():
    code = (
        "import sys; from analysis.__main__ import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'numpy', 'scipy', 'pandas', 'matplotlib', 'torch', 'rich'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)


def test_no_command_imports_torch_or_pandas(tmp_path):
    runs = [str(generate_run(tmp_path / name, SyntheticRun(intervals=30))) for name in "ab"]
    code = (
        "import sys; from analysis.__main__ import main\n"
        f"for command in {COMMANDS}: main([command, *{runs}])\n"
        "assert not {'torch', 'pandas', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)


@pytest.mark.parametrize("command", ALL)
def test_help_shows_an_example(command, capsys):
    name, _, view = command.partition(" --")
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert re.search(
        rf"ditbench {command} (cells )?(logs|docs)|ditbench {name} logs\S* --{view}", shown
    )
