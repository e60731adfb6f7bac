"""`python -m benchmarks.dry_run`: the memory of a rank, beside the closed form if there is one."""

import pytest

from benchmarks.dry_run import main

CIFAR10 = "configs/pretrain/cifar10.yaml"


def lines(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, float]:
    """Return the peak that each line prints, by the name in front."""
    assert main([CIFAR10, "train.compile=false", "train.global_batch=16", *words]) == 0
    printed = capsys.readouterr().out.splitlines()
    return {line[:11].strip(): float(line.split()[-1]) for line in printed}


def test_the_closed_form_stands_beside_the_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    found = lines(capsys, "model.depth=2")
    assert found["closed form"] == pytest.approx(found["dry run"], rel=0.05)


def test_a_unet_has_a_dry_run_alone(capsys: pytest.CaptureFixture[str]) -> None:
    unet = ("model.family=unet", "model.unet.width=32", "model.unet.layers=1")
    assert lines(capsys, *unet).keys() == {"dry run"}
