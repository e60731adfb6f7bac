"""Commands of README and docs that take minutes work as written.

They are typed in a copy of the tree. Where a page asks for more than minutes, numbers are smaller.
"""

import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from runs.folder import RunFolder, find_runs
from tests.docs.command_classes import MINUTES, matching
from tests.docs.page_commands import commands
from tests.env.test_create import COMPLETE
from tests.real_runs import clean_environment, events, finished
from tests.slurm.checkout import copy_tree
from tests.train.evaluate.test_fid import images, save_inception
from tests.train.latent_stores import write_store
from tests.train.tiny_vae import save_images

pytestmark = pytest.mark.long

TRAIN = "bash jobs/pretrain.sbatch configs/pretrain/digits.yaml train.steps=200"
TINY_FLUX = "python -m finetune tiny logs/tiny-flux"
TUNE = "bash jobs/finetune.sbatch configs/finetune/tiny.yaml"
STUDY = (
    "python -m launch submit configs/studies/d-options-small.yaml seed=0,1 train.compile=false"
    " train.steps=40 validation.every=4 checkpoint.every=20 log.every=1"
)
# Smaller numbers, and values for placeholders.
INSTEAD = {
    r"step-000000500": "step-000000200",
    r"(gns\.sbatch logs/\S+).*$": r"\1 bins=2 samples=2",
    r"samples=50$": "samples=5",
}
# `make test` within a test only collects them.
MAKE_TEST = {"PYTEST_ADDOPTS": "--collect-only -q"}
TYPED = [command for command in commands() if matching(command, MINUTES)]
MADE = [command for command in TYPED if command.startswith("make ")]
OF_A_STUDY = [command for command in TYPED if "logs/STUDY" in command]
OF_A_LORA = [command for command in TYPED if "jobs/infer" in command]
BEFORE = [TRAIN, TINY_FLUX, TUNE]
OTHERS = [command for command in TYPED if command not in (*MADE, *OF_A_STUDY, *OF_A_LORA, *BEFORE)]


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A copy of the tree to type commands in."""

    root: Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment of somebody who has set nothing."""
        known = clean_environment(OMP_NUM_THREADS="1")
        return {name: value for name, value in known.items() if name not in ("LOGS", "VENV")}

    def type(self, line: str, **changes: str) -> str:
        """Return the output of the line, which must succeed."""
        typed = line if line.startswith("make ") else f"source env/activate.sh; {line}"
        done = finished("bash", "-c", typed, cwd=self.root, env=self.environment | changes)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def run_of(self, line: str) -> RunFolder:
        """Return the run that a line makes, after its end."""
        before = set(find_runs(self.root / "logs"))
        self.type(line)
        (run,) = set(find_runs(self.root / "logs")) - before
        assert events(run)[-1] == "done"
        return run


def concrete(command: str) -> str:
    for form, instead in INSTEAD.items():
        command = re.sub(form, instead, command)
    return command


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    root = tmp_path_factory.mktemp("typed") / "ditbench"
    copy_tree(root)
    (root / ".venv").symlink_to(sys.prefix)
    return Tree(root=root)


@pytest.fixture(scope="module")
def run(tree: Tree) -> RunFolder:
    return tree.run_of(TRAIN)


@pytest.fixture(scope="module")
def furnished(tree: Tree, run: RunFolder) -> Tree:
    """A tree with a run, data, and downloaded files."""
    for name in ("RUN", "A"):
        (tree.root / "logs" / name).symlink_to(run.path)
    data = tree.root / "data"
    write_store(data / "made")
    shutil.move(data / "made" / "store", data / "imagenet256-sd")
    save_images(data / "imagenet" / "train", per_class=4)
    samples = tree.root / "logs" / "sample-RUN-ID" / "samples"
    samples.mkdir(parents=True)
    np.savez(samples / "images.npz", images(0, count=8))
    save_inception(tree.root / "inception.pth")
    return tree


@pytest.mark.parametrize("command", OTHERS)
def test_a_command_works_as_it_is_written(command: str, furnished: Tree) -> None:
    assert furnished.type(concrete(command))


def test_a_lora_is_trained_and_drawn_from(tree: Tree) -> None:
    tree.type(TINY_FLUX)
    run = tree.run_of(TUNE)
    for command in OF_A_LORA:
        drawn = tree.run_of(command.replace("logs/RUN", str(run.path.relative_to(tree.root))))
        assert list(drawn.samples.glob("prompt-00/image-*.png"))


def test_a_study_is_measured_and_reported(tree: Tree) -> None:
    output = tree.type(f"{STUDY} --local")
    study = re.search(r"^study: (.+)$", output, re.M)
    tree.type(f"python -m launch status {study[1]} --wait")
    (tree.root / "logs" / "STUDY").symlink_to(study[1])
    for command in OF_A_STUDY:
        assert tree.type(concrete(command))


@pytest.mark.skipif(not COMPLETE.exists(), reason="this virtualenv was not made by env/create.sh")
@pytest.mark.parametrize("command", MADE)
def test_what_make_makes_is_made(command: str, tree: Tree) -> None:
    assert tree.type(command, **(MAKE_TEST if command == "make test" else {}))


def test_all_of_them_are_typed() -> None:
    assert {*MADE, *OF_A_STUDY, *OF_A_LORA, *BEFORE, *OTHERS} == set(TYPED)
