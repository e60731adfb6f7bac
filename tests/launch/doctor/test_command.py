"""What the doctor makes of answers that the one-machine Slurm does not give."""

from collections.abc import Callable
from pathlib import Path

import pytest

from configs.errors import ConfigError
from launch.doctor import gpu_flags, measurements, site_file
from launch.doctor.gpu_flags import Gpus
from launch.doctor.measurements import Measurement
from launch.doctor.probe_jobs import ProbeJobs

Command = Callable[[str, str], Path]


def bench(folder: Path, **facts: str) -> ProbeJobs:
    """A bench whose jobs have all written their facts and ended."""
    for name, text in facts.items():
        (folder / f"{name}.facts").write_text(text)
    jobs = dict.fromkeys(("requeue", "node", "limit"), "7")
    return ProbeJobs(folder=folder, flags=[], patience_s=5, jobs=jobs)


def told(found: list[Measurement]) -> dict[str, str]:
    return {one.name: one.value for one in found}


def test_a_site_that_refuses_to_requeue_says_so(tmp_path: Path, command: Command) -> None:
    command("squeue", "echo '7|COMPLETED||None'")
    one = bench(tmp_path, requeue="start 0 100\nasked 0 100\nrefused\n")
    (tmp_path / "requeue.error").write_text("Requested operation is presently disabled\n")
    (answer,) = measurements.requeue(one)
    assert answer.value == "refused"
    assert "Requested operation is presently disabled" in answer.means


def test_a_warning_that_nobody_hears_is_told(tmp_path: Path, command: Command) -> None:
    command("squeue", "echo '7|TIMEOUT||None'")
    one = bench(tmp_path, limit="start 40.5\nbatch-TERM 175.5\nstep-TERM 175.7\n")
    (tmp_path / "step.beat").write_text("205.6\n")
    assert told(measurements.limit(one)) == {
        "--signal=B:USR1@40": "never came",
        "TERM at the limit": "+15 s after it",
        "KILL after TERM": "30 s",
    }


def test_a_job_that_never_started_is_not_measured(tmp_path: Path, command: Command) -> None:
    command("squeue", "echo '7|CANCELLED||None'")
    assert told(measurements.limit(bench(tmp_path))) == {"time limit": "not measured"}
    assert told(measurements.node(bench(tmp_path))) == {"node": "not measured"}


@pytest.mark.parametrize(
    ("accepts", "spelled"),
    [
        ("--gpus-per-task=a40:2", "--gpus-per-task=TYPE:N"),
        ("--gres=gpu:a40:2", "--gres=gpu:TYPE:N"),
        ("--constraint=a40 --gpus=2", "--constraint=TYPE --gpus=N"),
        ("nothing", None),
    ],
)
def test_the_spelling_that_is_accepted_is_found(
    command: Command, accepts: str, spelled: str | None
) -> None:
    command("sinfo", "printf 'gpu:a40:2(S:0-1),tmpdisk:9\\n(null)\\n'")
    command("sbatch", f'[[ "$*" == *"{accepts}"* ]]')
    found = gpu_flags.gpus([])
    assert [(one.kind, one.most) for one in found] == [("a40", 2)]
    assert gpu_flags.best(found) == spelled
    assert gpu_flags.discriminates([])


def test_a_site_file_without_a_spelling_says_that_none_was_measured() -> None:
    found = [Gpus(kind="a40", most=2, accepted=[])]
    text = site_file.text("mine", [], found, flags=["--account=a b"])
    assert "# Not measured: no syntax was accepted" in text
    assert "JOB_FLAGS=('--account=a b')" in text


def test_words_of_the_cluster_stay_in_their_comment() -> None:
    evil = Measurement(name="Slurm", value="22\nrm -rf x", means="a\x1bb")
    lines = site_file.text("mine", [evil], [], flags=[]).splitlines()
    assert r"# Slurm: 22\nrm -rf x (a\x1bb)" in lines


@pytest.mark.parametrize("name", ["../x", "a b", "", "-x", "a.sh"])
def test_a_site_is_named_by_letters_and_digits(name: str) -> None:
    with pytest.raises(ConfigError, match="invalid as a site name"):
        site_file.site_name(name)
