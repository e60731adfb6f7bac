"""The engine of a run: from the config, else from earlier attempts, else from the site."""

from pathlib import Path

import pytest

from configs.checks.aitoolkit import engine_of
from configs.errors import ConfigError
from finetune.__main__ import main
from runs.attempt.open import open_attempt
from runs.folder import RunFolder
from tests.finetune.aitoolkit_runs import make_toolkit
from tests.finetune.conftest import TINY, paths
from tests.real_runs import opened

pytestmark = pytest.mark.xdist_group("flux")


@pytest.fixture
def run(flux: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.delenv("AI_TOOLKIT", raising=False)
    return opened(TINY, paths(flux), kind="finetune")


def engine(run: RunFolder, configured: str = "auto", *, world: int = 1) -> str:
    config = run.config()
    return engine_of(
        config.model_copy(update={"engine": configured}), world=world, before=run.engine()
    )


def test_auto_is_ai_toolkit_if_the_site_names_it(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine(run) == "embedded"
    monkeypatch.setenv("AI_TOOLKIT", "/some/folder")
    assert engine(run) == "aitoolkit"
    assert engine(run, "embedded") == "embedded"


def test_auto_uses_the_embedded_engine_for_several_gpus(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AI_TOOLKIT", "/some/folder")
    assert engine(run, world=2) == "embedded"


@pytest.mark.parametrize(("has_site", "gpus"), [(False, 0), (True, 2)])
def test_auto_refuses_keys_of_ai_toolkit_where_it_takes_the_native_engine(
    has_site: bool, gpus: int, flux: Path, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AI_TOOLKIT", raising=False)
    kit = make_toolkit(logs.with_name("kit"))
    if has_site:
        monkeypatch.setenv("AI_TOOLKIT", str(kit))
    passed = [*paths(flux), "aitoolkit.train.noise_offset=0.1"]
    with pytest.raises(ConfigError, match=r"takes the native engine .* set engine=aitoolkit"):
        open_attempt(TINY, passed, kind="finetune", gpus=gpus)
    assert not logs.exists()
    monkeypatch.setenv("AI_TOOLKIT", str(kit))
    assert open_attempt(TINY, passed, kind="finetune", gpus=1)


def test_a_resumed_run_keeps_the_engine_that_trained_it(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.note(1, engine="embedded")
    monkeypatch.setenv("AI_TOOLKIT", "/some/folder")
    assert engine(run) == "embedded"


def test_a_run_of_another_kind_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    attempt = open_attempt(Path("configs/pretrain/digits.yaml"), [])
    assert main([str(attempt.parent.parent)]) == 2
    assert "its kind is pretrain; `python -m finetune` does not run it" in capsys.readouterr().err


def test_a_command_of_ditbench_is_not_taken_for_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "data/subject"]) == 2
    assert "did you mean ditbench check data/subject?" in capsys.readouterr().err
