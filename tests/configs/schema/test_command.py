"""The command of a `command` config: its words, and the mistakes that are refused."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from configs.errors import ConfigError
from configs.grid.study_file import load_grid
from configs.load import load, resolve
from configs.schema import Command
from runs.snapshot import SUMS, read_trees, save


def command(**keys: Any) -> Command:
    config = resolve({"kind": "command", **keys}, source="my.yaml")
    assert isinstance(config, Command)
    return config


def test_a_value_stays_one_word_and_is_not_parsed() -> None:
    run = "python train.py --lr={lr} '{name}' {{lr}} {seed} {output}/x --gpus {gpus}x{nodes}"
    config = command(run=run, params={"lr": 1e-4, "name": "a b; $(c)"}, seed=3)
    assert config.words(config.run, "/out put") == [
        "python", "train.py", "--lr=0.0001", "a b; $(c)", "{lr}", "3", "/out put/x", "--gpus", "1x1"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, "run: name the command"),
        ({"run": "a 'b"}, "run: No closing quotation"),
        ({"run": "a {lr}"}, "{lr} is none of output, seed, gpus, nodes; add it to params"),
        ({"run": "a", "resume": "a {x}"}, "resume: {x} is none of"),
        ({"run": "a", "params": {"lr": 1}}, "params.lr: the command does not use it"),
        ({"run": "a {{lr}}", "params": {"lr": 1}}, "params.lr: the command does not use it"),
        ({"run": "a", "seed": 1}, "seed: the command does not use it; write {seed}"),
        ({"run": "a {seed}", "params": {"seed": 1}}, "params.seed: not a name"),
        ({"run": "a {x}", "params": {"x": [1]}}, "params.x: expected one value"),
        ({"run": "a {x}", "params": {"x": None}}, "params.x: expected one value"),
        *[
            ({"run": f"python a.py {word}"}, "no shell reads the command")
            for word in ("&& b", "| tee log", "> log", "2>&1", "$HOME/x", '"$(id)"', "data/*.tar",
                         "; b", "&", "~/data", "`id`", "a; b")
        ],
        ({"run": "LR=1 python a.py"}, "LR=1: no shell reads the command"),
    ],
)  # fmt: skip
def test_a_command_that_would_not_do_what_it_says_is_refused(
    keys: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        command(**keys)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "word", ["'a|b'", "'*.tar'", "'$x'", "a=b", "--json='{\"a\": [1]}'", "x&y"]
)
def test_quotes_keep_a_sign_of_the_shell_as_it_is(word: str) -> None:
    command(run=f"python a.py {word}")


def test_the_folder_of_the_program_is_that_of_its_yaml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my.yaml").write_text("kind: command\nrun: python a.py\n")
    monkeypatch.chdir(tmp_path.parent)
    config = load(Path(tmp_path.name, "my.yaml"))
    assert isinstance(config, Command)
    assert config.folder == str(tmp_path)


def test_cells_of_different_programs_are_refused(tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text("kind: command\nrun: python a.py\n")
    study = "kind: study\nbase: my.yaml\naxes: {two: {a: {files: [a.py]}, b: {files: [b.py]}}}\n"
    (tmp_path / "study.yaml").write_text(study)
    with pytest.raises(ConfigError, match="must be the same for all cells"):
        load_grid(tmp_path / "study.yaml", [])


def test_a_snapshot_holds_the_named_files_and_folders(tmp_path: Path) -> None:
    for name in ("a.py", "src/b.py", "data/big"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    program = read_trees(command(run="a", folder=str(tmp_path), files=["a.py", "src"])).program
    assert program is not None
    folder = save(program, tmp_path / "logs")
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert found - {"version.json", SUMS} == {"a.py", "src/b.py"}
    for names, message in ((["c.py"], "no such file"), ([str(Path.cwd())], "not below")):
        with pytest.raises(ConfigError, match=message):
            read_trees(command(run="a", folder=str(tmp_path), files=names))


def test_without_files_the_snapshot_is_the_tree_of_the_users_repository(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a")
    config = command(run="a", folder=str(tmp_path))
    with pytest.raises(ConfigError, match="list its files"):
        read_trees(config)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    program = read_trees(config).program
    assert program is not None
    assert [file.path for file in program.files] == [b"a.py", SUMS.encode()]
