"""Fixtures: a tiny Flux, and fine-tuning runs in this process."""

from collections.abc import Callable
from pathlib import Path

import pytest

from finetune.tiny_flux import make_tiny_flux
from runs.attempt.close import close_attempt
from runs.attempt.open import open_attempt
from runs.folder import RunFolder
from tests.real_runs import in_this_process

TINY = Path("configs/finetune/tiny.yaml")
# A run takes two seconds; the learning rate is high enough that it still learns.
QUICK = (
    "engine=embedded", "train.steps=40", "checkpoint.every=20", "sample.every=20",
    "validation.every=20", "optimizer.lr=0.005", "data.resolutions=[32]", "sample.steps=2",
    "log.every=1", "log.tensorboard=false",
)  # fmt: skip

TrainLora = Callable[..., RunFolder]


@pytest.fixture(scope="session")
def flux(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with `model/` and `images/`."""
    folder = tmp_path_factory.mktemp("flux") / "tiny"
    make_tiny_flux(folder)
    return folder


def paths(flux: Path) -> list[str]:
    """Return the overrides that name the parts of `flux`."""
    return [f"flux.folder={flux / 'model'}", f"data.folder={flux / 'images'}"]


def run_attempt(
    source: Path, overrides: list[str], *, kind: str = "finetune", stop_request: str | None = None
) -> RunFolder:
    """Run one attempt in this process and close it as the job body does.

    `stop_request` (PAUSE or STOP) is a file that the body left in the attempt before the ranks
    started.
    """
    # Imported here because not every test of this folder needs torch.
    from finetune import infer
    from finetune.native import run as native
    from train.engine import attempt as engine

    attempt = open_attempt(source, overrides, kind=kind)
    run, number = RunFolder(attempt.parent.parent), int(attempt.name)
    if stop_request:
        (attempt / stop_request).touch()
    work = native.carry_out if kind == "finetune" else infer.carry_out
    with in_this_process():
        status = engine.run_attempt(run, work, number=number)
    close_attempt(attempt, status=status)
    return run


@pytest.fixture(scope="session")
def train_lora(flux: Path) -> TrainLora:
    """Return a function that fine-tunes the tiny Flux, or resumes a run, with more overrides."""

    def train(
        *overrides: str, resumes: RunFolder | None = None, stop_request: str | None = None
    ) -> RunFolder:
        if resumes:
            return run_attempt(resumes.path, list(overrides), stop_request=stop_request)
        return run_attempt(TINY, [*paths(flux), *QUICK, *overrides], stop_request=stop_request)

    return train


@pytest.fixture(scope="session")
def trained(train_lora: TrainLora) -> RunFolder:
    """Return a run of 40 steps, saved and evaluated after 20 and 40."""
    return train_lora()
