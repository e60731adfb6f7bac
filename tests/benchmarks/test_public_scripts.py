"""The comparison of scripts tells equal, reordered and different output apart, on made-up jobs."""

import pytest

from benchmarks.public_scripts import Left, judge


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
