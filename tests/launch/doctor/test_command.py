"""The doctor on clusters that behave unlike the one-machine Slurm."""

from pathlib import Path

import pytest

from launch.doctor import gpu_flags, measurements, site_file
from launch.doctor.gpu_flags import Gpus
from launch.doctor.measurements import Measurement
from tests.launch.conftest import Command

FACTS = """host node-1
lacks {lacks}
asked requeue
"""


def values(found: list[Measurement]) -> dict[str, tuple[str, str]]:
    return {one.name: (one.value, one.means) for one in found}


@pytest.fixture
def job(command: Command) -> None:
    """A cluster whose job 7 has ended."""
    command("sbatch", "cat >/dev/null; echo 7")
    command("squeue", "echo '7|COMPLETED||||None'")
    for name in ("scancel", "sacct"):
        command(name, "exit 0")


def test_a_site_that_refuses_to_requeue_says_so(tmp_path: Path, job: None) -> None:
    refused = "refused Requested operation is presently disabled\n"
    (tmp_path / "facts").write_text(FACTS.format(lacks="") + refused)
    found = values(measurements.probe(tmp_path, []))
    why = "resubmit to continue; Requested operation is presently disabled"
    assert found["requeue"] == ("refused", why)
    assert found["driver and compiler"] == ("good", "")


@pytest.mark.parametrize(
    ("accepts", "syntax"),
    [
        ("--gpus-per-task=a40:2", "--gpus-per-task=TYPE:N"),
        ("--gres=gpu:a40:2", "--gres=gpu:TYPE:N"),
        ("--constraint=a40 --gpus=2", "--constraint=TYPE --gpus=N"),
        ("nothing", None),
    ],
)
def test_the_accepted_syntax_is_found(command: Command, accepts: str, syntax: str | None) -> None:
    command("sinfo", "printf 'n1|gpu:a40:2(S:0-1),tmpdisk:9\\nn2|(null)\\n'")
    command("sbatch", f'[[ "$*" == *"{accepts}"* ]]')
    found = gpu_flags.gpus([])
    assert [(one.kind, one.most) for one in found] == [("a40", 2)]
    assert gpu_flags.best(found) == syntax
    assert gpu_flags.discriminates([])


def test_a_site_file_without_an_accepted_syntax_says_so() -> None:
    found = [Gpus(kind="a40", most=2, accepted=[])]
    text = site_file.text("mine", found, flags=["--account=a b"], node="")
    assert "# Not measured: no syntax was accepted" in text
    assert "JOB_FLAGS=('--account=a b')" in text


@pytest.mark.parametrize(
    ("here", "node", "lines"),
    [
        ("login1.cluster.example.edu", "d05-10.hpc.example.edu",
         "# host: login[0-9]*.cluster.example.edu\n# host: d[0-9]*.hpc.example.edu\n\n"),
        ("head", "head", "# host: head\n\n"),
        ("localhost", "?", "# To select this file automatically, add a line such as"),
    ],
)  # fmt: skip
def test_the_site_file_names_login_and_compute_nodes(
    here: str, node: str, lines: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    command("hostname", f"echo {here}")
    monkeypatch.setenv("LOADEDMODULES", "gcc/12.3.0:python/3.11.4")
    text = site_file.text("mine", [], flags=[], node=node)
    assert f"See env/sites/example.sh.\n{lines}" in text
    assert "\nMODULES=(gcc/12.3.0 python/3.11.4)\n" in text
