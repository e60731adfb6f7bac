"""A tiny Flux for all tests, and attempts at runs carried out in this process."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from configs.attempt.close import close_attempt
from configs.attempt.open import open_attempt
from configs.run.folder import RunFolder
from finetune.tiny_flux import make

TINY = Path("configs/finetune/tiny.yaml")
# So short that a run is over in two seconds, and so steep that it learns all the same.
QUICK = (
    "engine=embedded", "train.steps=40", "checkpoint.every=20", "sample.every=20",
    "validation.every=20", "optimizer.lr=0.005", "data.resolutions=[32]", "sample.steps=2",
    "log.every=1", "log.tensorboard=false",
)  # fmt: skip

Tune = Callable[..., RunFolder]


@pytest.fixture(scope="session")
def flux(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `model/`, `images/` and `assistant.safetensors`."""
    folder = tmp_path_factory.mktemp("flux") / "tiny"
    make(folder)
    return folder


def paths(flux: Path) -> list[str]:
    """The overrides that name what stands in `flux`."""
    return [
        f"flux.folder={flux / 'model'}",
        f"data.folder={flux / 'images'}",
        f"flux.assistant_lora={flux / 'assistant.safetensors'}",
    ]


def carry_out(
    source: Path, overrides: list[str], *, kind: str = "finetune", stop_request: str | None = None
) -> RunFolder:
    """One attempt at a run, in this process, to its end as the job body settles it.

    The body left `wish` (PAUSE or STOP) in the attempt before the ranks began.
    """
    # Imported where wanted: not every test of the folder needs torch.
    import torch

    from finetune import infer
    from finetune.native import run as native
    from train.engine.metrics import log

    # Tests run beside one another: threads that wait by spinning would keep the others waiting.
    torch.set_num_threads(1)
    attempt = open_attempt(source, overrides, kind=kind)
    assert attempt is not None
    run, number = RunFolder(attempt.parent.parent), int(attempt.name)
    if stop_request:
        (attempt / stop_request).touch()
    heard = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)
    before = {each: signal.getsignal(each) for each in heard}
    try:
        engine = native if kind == "finetune" else infer
        status = engine.attempt(run, number=number)
    finally:
        for each, earlier in before.items():
            signal.signal(each, earlier)
        for handler in log.handlers:
            handler.close()
        log.handlers = []
    close_attempt(attempt, status=status)
    return run


@pytest.fixture(scope="session")
def tune(flux: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tune]:
    """Fine-tune the tiny Flux with more overrides; a run to resume may stand in place of it."""
    logs = tmp_path_factory.mktemp("logs")

    def to_its_end(
        *overrides: str, resumes: RunFolder | None = None, stop_request: str | None = None
    ) -> RunFolder:
        if resumes:
            return carry_out(resumes.path, list(overrides), stop_request=stop_request)
        return carry_out(TINY, [*paths(flux), *QUICK, *overrides], stop_request=stop_request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOGS", str(logs))
        yield to_its_end


@pytest.fixture(scope="session")
def tuned(tune: Tune) -> RunFolder:
    """A run of 40 steps, saved and looked at after 20 and 40."""
    return tune()
