"""The comparison of scripts tells equal, reordered and different output apart, on made-up jobs."""

from pathlib import Path

import pytest

from benchmarks.public_scripts import Left, judge, overrides, resumes, varied

MY = Path("my.sbatch")


def left(text: str, state: str = "COMPLETED", name: str = "slurm-JOB.out") -> Left:
    return Left(state=(state, "0:0"), files={name: text.encode()})


@pytest.mark.parametrize(
    ("plain", "again", "own", "outcome"),
    [
        (left("a\nb"), left("a\nb"), left("a\nb"), "equal"),
        (left("a\nb"), left("a\nb"), left("b\na"), "equal but for the order of lines"),
        (left("a\nb"), left("a\nb"), left("a\nc"), "differs"),
        (left("a\nport 12"), left("a\nport 13"), left("a\nport 14"), "equal"),
        (left("a\nport 12"), left("a\nport 12"), left("a\nport 14"), "differs"),
        (left("a\nport 12"), left("a\nport 13"), left("a\nhost 14"), "differs"),
        (left("a"), left("a"), left("a", "FAILED"), "differs"),
        (left("a"), left("a"), left("a", name="other"), "differs"),
    ],
)
def test_output_is_equal_if_the_same_bytes_are_left(
    plain: Left, again: Left, own: Left, outcome: str
) -> None:
    assert judge(plain, again, own)[0] == outcome


def test_only_requests_that_the_script_makes_or_the_machine_needs_are_overridden() -> None:
    text = "#!/bin/bash\n#SBATCH --nodes=8 --output=/scratch/a.out\n#SBATCH --constraint=v100\n"
    flags = overrides(text, number=0, path=MY)
    assert {"--nodes=2", "--constraint=", "--output=output-%j.txt"} <= {*flags}
    assert not any(flag.startswith(("--reservation", "--chdir")) for flag in flags)


def test_the_likeliest_name_is_varied_first() -> None:
    text = "python a.py --name x --lr 0.1\n"
    assert varied(text, MY) == "--lr"
    assert (varied("bash run.sh\n", MY), resumes(text, MY)) == ("", "yes")
    assert "finds no line" in resumes("bash run.sh\n", MY)
