"""A value in a batch script is replaced in its one place, or the question is asked."""

import subprocess
from pathlib import Path

import pytest

from configs.errors import ConfigError
from launch.script.edit import mark_resume, present_value, seed_name, vary

MY = Path("my.sbatch")


def varied(text: str, name: str, value: str = "7") -> str:
    return vary(text, name, value, path=MY).text


@pytest.mark.parametrize(
    ("before", "name", "after"),
    [
        ("python a.py --lr 1", "--lr", "python a.py --lr 7"),
        ("python a.py --lr=1e-4 --x", "--lr", "python a.py --lr=7 --x"),
        ("python a.py --lr   '1e-4'", "--lr", "python a.py --lr   7"),
        ('python a.py --lr="1"; echo', "--lr", "python a.py --lr=7; echo"),
        ("python a.py --lr \\\n  1 --x", "--lr", "python a.py --lr \\\n  7 --x"),
        ("python a.py --lr 1|tee x", "--lr", "python a.py --lr 7|tee x"),
        ("# --lr 2\npython a.py --lr 1 # --lr 3", "--lr", "# --lr 2\npython a.py --lr 7 # --lr 3"),
        ("cat <<E\n--lr 2\nE\na.py --lr 1", "--lr", "cat <<E\n--lr 2\nE\na.py --lr 7"),
        ("python a.py --lr-min 2 --lr 1", "--lr", "python a.py --lr-min 2 --lr 7"),
        ("python a.py --my--lr 2 --lr 1", "--lr", "python a.py --my--lr 2 --lr 7"),
        ("LR=1\npython a.py --lr $LR", "--lr", "LR=7\npython a.py --lr $LR"),
        ('LR="1"\npython a.py --lr "${LR}"', "--lr", 'LR=7\npython a.py --lr "${LR}"'),
        ("export LR=1\npython a.py --lr $LR", "LR", "export LR=7\npython a.py --lr $LR"),
        ("python a.py optim.lr=1 +seed=0", "optim.lr", "python a.py optim.lr=7 +seed=0"),
        ("python a.py optim.lr=1 +seed=0", "+seed", "python a.py optim.lr=1 +seed=7"),
        ('ARGS="--lr 1 --x"\npython a.py $ARGS', "--lr", 'ARGS="--lr 7 --x"\npython a.py $ARGS'),
        ("srun bash -c 'python a.py --lr 1'", "--lr", "srun bash -c 'python a.py --lr 7'"),
        ("python a.py -lr 1", "-lr", "python a.py -lr 7"),
    ],
)  # fmt: skip
def test_the_one_value_is_replaced(before: str, name: str, after: str) -> None:
    assert varied(before, name) == after


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("python a.py --lr 1\npython b.py --lr 2", "--lr", "occurs in lines 1, 2"),
        ("LR=1\nLR=2\npython a.py --lr $LR", "--lr", "LR occurs in lines 1, 2"),
        ("for LR in 1 2; do python a.py --lr $LR; done", "--lr", "not plain text or a variable"),
        ("python a.py --lr $(cat lr)", "--lr", "not plain text or a variable"),
        ("python a.py --lr `cat lr`", "--lr", "not plain text or a variable"),
        ("python a.py --lr $1", "--lr", "$1"),
        ("python a.py --lr $LR", "--lr", "vary LR="),
        ("python a.py --lr a$LR", "--lr", "not plain text or a variable"),
        ("python a.py --lr", "--lr", "not plain text or a variable"),
        ("python a.py", "--lr", "does not occur"),
        ("python a.py", "LR", "does not occur"),
        ("echo $LR2", "LR", "does not occur"),
    ],
)
def test_nothing_is_guessed(text: str, name: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        varied(f"#!/bin/bash\n{text}\n".replace("#!/bin/bash\n", "", 1), name)
    assert words in str(error.value)


@pytest.mark.parametrize("value", ["a b", "$(touch x)", "a'b", 'a"b', "a;b", "a\nb", "*", "~", ""])
def test_a_value_reaches_the_program_as_one_word_or_is_refused(value: str, tmp_path: Path) -> None:
    for text in ("printf %s --x A", 'printf %s --x "A"'):
        script = vary(text, "--x", value, path=MY).text.replace("--x ", "")
        done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, check=True)
        assert done.stdout.decode() == value
    with pytest.raises(ConfigError, match="stands in quotes"):
        vary("bash -c 'python a.py --x A'", "--x", value, path=MY)
    assert not list(tmp_path.iterdir())


def test_a_variable_that_the_script_only_reads_is_exported() -> None:
    found = vary("python a.py --lr ${LR:-1}", "LR", "a b", path=MY)
    assert (found.text, found.exports) == ("python a.py --lr ${LR:-1}", {"LR": "a b"})
    found = vary("python a.py --lr $LR", "LR", "2", path=MY)
    assert found.exports == {"LR": "2"}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("python a.py --seed 3", "--seed"),
        ("python a.py --global-seed=3", "--global-seed"),
        ("SEED=3\npython a.py --seed $SEED", "--seed"),
        ("SEED=3\npython a.py $SEED", "SEED"),
        ("python a.py +seed=3", "seed"),
    ],
)
def test_the_seed_of_a_script_is_found(text: str, name: str) -> None:
    assert seed_name(text, path=MY) == name
    assert present_value(text, name, path=MY) == "3"


@pytest.mark.parametrize("text", ["python a.py", "python a.py --seed 1 --global-seed 2"])
def test_a_seed_is_asked_about_if_there_is_none_or_two(text: str) -> None:
    with pytest.raises(ConfigError, match="--seeds"):
        seed_name(text, path=MY)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("python a.py --lr 1", "python a.py --lr 1 MARK"),
        ("python a.py --lr 1 > log 2>&1", "python a.py --lr 1 MARK > log 2>&1"),
        ("python a.py 'a|b' | tee x", "python a.py 'a|b' MARK | tee x"),
        ("torchrun a.py \\\n --lr 1 \\\n --x\n:", "torchrun a.py \\\n --lr 1 \\\n --x MARK\n:"),
        ("python prepare.py\npython a.py # train", "python prepare.py\npython a.py MARK # train"),
        ("python a.py && echo done", "python a.py MARK && echo done"),
        ("python a.py &\nwait", "python a.py MARK &\nwait"),
    ],
)  # fmt: skip
def test_flags_of_a_resume_follow_those_of_the_last_program(before: str, after: str) -> None:
    assert mark_resume(before, "MARK", path=MY) == after


@pytest.mark.parametrize("text", ["bash run.sh", "srun bash -c 'python a.py'", "echo python a.py"])
def test_where_the_program_is_not_seen_nothing_is_added(text: str) -> None:
    with pytest.raises(ConfigError, match="--resume"):
        mark_resume(text, "MARK", path=MY)
