"""The first figure on a cluster, by the lines of docs/tour.md, typed in a bare shell."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.page_commands import blocks
from tests.env.test_create import COMPLETE
from tests.slurm.checkout import copy_tree
from tests.slurm.cluster import Cluster

LINES = next(blocks(Path("docs/tour.md"))).lines
# The checkout is there already, and has a virtualenv.
CLONE = "git clone URL ditbench && cd ditbench"

pytestmark = pytest.mark.skipif(
    not COMPLETE.exists(), reason="this virtualenv was not made by env/create.sh"
)


def typed(
    *lines: str, root: Path, cluster: Cluster, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Type the lines at a shell that has a PATH, a home, and the variable of this Slurm."""
    virtual = f"{sys.prefix}/bin"
    path = [one for one in cluster.environment["PATH"].split(os.pathsep) if one != virtual]
    bare = {"PATH": os.pathsep.join(path), "HOME": str(root.parent)}
    done = subprocess.run(
        ["bash", "-e"], input="\n".join(lines), cwd=root, capture_output=True, text=True,
        env=bare | {"SLURM_CONF": cluster.environment["SLURM_CONF"]}, timeout=timeout, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "ditbench"
    copy_tree(root)
    (root / ".venv").symlink_to(sys.prefix)
    return root


def lines_after_the_clone() -> list[str]:
    assert LINES[0] == CLONE
    assert len(LINES) <= 6
    return [line.replace("YOURS", "ditbench") for line in LINES[1:]]


def test_the_lines_before_a_job_work_in_a_bare_shell(root: Path, cluster: Cluster) -> None:
    create, doctor, submit, *_ = lines_after_the_clone()
    lines = (create, doctor, f"{submit} --script".replace("submit", "plan"))
    done = typed(*lines, "ditbench status --once || true", root=root, cluster=cluster)
    written = f"written: {root}/env/sites/onemachine.sh, used on this host from now on"
    assert written in done.stdout
    # After an activation as `local`, in the same shell.
    assert "export SITE=onemachine\n" in done.stdout
    for gpus in (1, 2):
        assert f"#SBATCH --gpus-per-node={gpus}\n" in done.stdout
    assert "#SBATCH --account=ditbench\n" in done.stdout


@pytest.mark.long
def test_the_first_figure_takes_the_six_lines_of_the_tour(root: Path, cluster: Cluster) -> None:
    done = typed(*lines_after_the_clone(), root=root, cluster=cluster, timeout=1800)
    table = done.stdout[done.stdout.rindex("speedup") :]
    assert table.count("x [") == 1, done.stdout
