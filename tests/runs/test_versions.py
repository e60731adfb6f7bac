"""Runs of every schema version are resumed and read; a newer one is refused in one line.

`versions/vN` is a real run of that version, without its checkpoint: it must never be written anew.
"""

import json
import shutil
from pathlib import Path

import pytest

from analysis.__main__ import main as analysis
from configs.schema.removed import REMOVED_KEYS, Removed
from configs.yaml12 import dump_yaml
from runs.__main__ import main as runs
from runs.folder import RunFolder
from runs.json_files import SCHEMA_VERSION

VERSIONS = Path(__file__).with_name("versions")

pytestmark = pytest.mark.usefixtures("logs")


@pytest.fixture(params=range(1, SCHEMA_VERSION + 1))
def run(request: pytest.FixtureRequest, tmp_path: Path) -> RunFolder:
    copy = tmp_path / "run"
    shutil.copytree(VERSIONS / f"v{request.param}", copy)
    return RunFolder(copy)


def test_a_run_of_each_version_is_resumed_and_read(run: RunFolder, capsys) -> None:
    assert runs(["open", str(run.path), "train.steps=6"]) == 0, capsys.readouterr().err
    assert (run.attempts(), run.config(2).train.steps) == ([1, 2], 6)
    capsys.readouterr()
    assert analysis(["runs", str(run.path), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["state"], row["step"]) == ("done", 4)


def test_a_run_whose_key_was_removed_is_resumed_at_its_default_and_else_only_read(
    run: RunFolder, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(REMOVED_KEYS, "updates", Removed(default=0, instead="set train.steps"))
    text = run.config_file.read_text()
    run.config_file.write_text(f"{text}updates: 0\n")
    assert runs(["open", str(run.path), "train.steps=6"]) == 0, capsys.readouterr().err
    run.config_file.write_text(f"{text}updates: 5\n")
    capsys.readouterr()
    assert runs(["open", str(run.path)]) == 2
    assert capsys.readouterr().err == f"{run.config_file}: updates: removed; set train.steps\n"
    assert analysis(["runs", str(run.path), "--json"]) == 0


def test_a_run_of_an_engine_that_has_gone_is_read_and_not_resumed(tmp_path: Path, capsys) -> None:
    tree = {"kind": "finetune", "flux": {"folder": "/m"}, "data": {"folder": "/d"}}
    tree |= {"sample": {"prompts": ["a"]}, "lora": {"kind": "dora"}}
    old = RunFolder(tmp_path / "old")
    shutil.copytree(VERSIONS / "v1", old.path)
    old.config_file.write_text(dump_yaml(tree))
    assert runs(["show", str(old.path)]) == 2
    assert "lora.kind: removed; set aitoolkit.network.type" in capsys.readouterr().err
    assert analysis(["runs", str(old.path), "--json"]) == 0
    old.config_file.write_text(dump_yaml(tree | {"lora": {"kind": "lora", "dropout": 0.0}}))
    assert runs(["show", str(old.path)]) == 0


def test_a_run_of_a_newer_version_is_refused_in_one_line(run: RunFolder, capsys) -> None:
    newer = run.manifest_file.read_text().replace(
        '"schema_version": 1', f'"schema_version": {SCHEMA_VERSION + 1}'
    )
    run.manifest_file.write_text(newer)
    for main, command in ((runs, "open"), (analysis, "speed")):
        assert main([command, str(run.path)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "is of a newer ditbench" in line
