"""A script that is varied can be written down as a study, and run in a copy of its repository."""

import re
import subprocess
from pathlib import Path

import pytest

from configs.load import read_tree
from tests.slurm.cluster import wait_until

SCRIPT = "#!/bin/bash\npython train.py --lr 1 --seed 3 $LR\n"
WORDS = [
    "--vary",
    "--lr=1e-4,3e-4",
    "--vary",
    "LR=x",
    "--seeds",
    "2",
    "--resume=--ckpt {newest:*.pt}",
]


def test_the_study_that_a_script_becomes_gives_the_same_runs(
    launch, command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command("sbatch", "exit 0")
    monkeypatch.chdir(tmp_path)
    Path("my.sbatch").write_text(SCRIPT)
    arguments = ["--", "--partition=gpu", "--", "first", "a b"]
    code, text, _ = launch("plan", "my.sbatch", *WORDS, "--yaml", *arguments)
    assert code == 0
    assert text.startswith("# ditbench submit FILE -- --partition=gpu\nkind: study\n")
    file = tmp_path / "elsewhere" / "written.yaml"
    file.parent.mkdir()
    file.write_text(text)
    assert read_tree(file) == {
        "kind": "study",
        "base": str(tmp_path / "my.sbatch"),
        "set": {"run": "first 'a b'", "resume": "--ckpt {newest:*.pt}"},
        "axes": {"--lr": ["1e-4", "3e-4"], "LR": ["x"], "seed": [3, 4]},
    }
    plans = [
        launch("plan", "my.sbatch", *WORDS, "--script", *arguments)[1],
        launch("plan", file, "--script", "--", "--partition=gpu")[1],
    ]
    assert plans[0].count("first 'a b'") == 1
    assert plans[0].count("--lr 3e-4") == 2
    assert plans[0].replace("sbatch my.sbatch", "") == plans[1].replace(f"{tmp_path}/", "")
    assert launch("check", file)[0] == launch("check", "my.sbatch")[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("throttle: 2", "throttle: does not apply to a batch script"),
        ("axes: {--lr: {a: {x: 1}}}", "--lr: of a batch script write [VALUE, VALUE]"),
        ("axes: {--rate: [1]}", "--rate does not occur in the script"),
    ],
)
def test_a_study_of_a_script_refuses_what_it_cannot_do(
    launch, tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "my.sbatch").write_text(SCRIPT)
    (tmp_path / "written.yaml").write_text(f"kind: study\nbase: my.sbatch\n{text}\n")
    code, _, err = launch("plan", tmp_path / "written.yaml")
    assert code == 2
    assert words in err


def test_a_snapshot_copies_code_and_links_data(
    launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "my repo"
    (repository / "sub").mkdir(parents=True)
    (repository / "data").mkdir()
    (repository / "data" / "one").write_text("1\n")
    (repository / ".gitignore").write_text("data/\n")
    (repository / "sub" / "train.sh").write_text("echo before; cat ../data/one; touch out\n")
    (repository / "sub" / "my.sbatch").write_text(
        "#!/bin/bash\nuntil [[ -e go ]]; do sleep 0.05; done\nbash train.sh\n"
    )
    subprocess.run(["git", "init", "-q", repository], check=True)
    monkeypatch.chdir(repository / "sub")
    code, out, err = launch("submit", "my.sbatch", "--snapshot", "--local")
    assert code == 0, err
    assert f"runs in a copy of {repository}; linked, not copied: data\n" in err
    run = Path(re.search(r"^run: (.*)$", out, re.MULTILINE)[1])
    (repository / "sub" / "train.sh").write_text("echo after\n")
    (run / "code" / "sub" / "go").touch()
    wait_until(lambda: '"done"' in (run / "metrics.jsonl").read_text(), timeout=30)
    assert (run / "attempts" / "001" / "output.log").read_text() == "before\n1\n"
    assert (run / "code" / "sub" / "out").exists()
    assert not Path("out").exists()


def test_a_snapshot_needs_a_repository(launch, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.sbatch").write_text(SCRIPT)
    code, _, err = launch("submit", "my.sbatch", "--snapshot", "--local")
    assert (code, "not in a git repository" in err) == (2, True)
