"""What another user left in LOGS is neither continued nor run."""

import os
import shutil
from pathlib import Path

import pytest

from runs.__main__ import main as runs
from runs.folder import RunFolder
from runs.study_folder import StudyFolder
from tests.launch.conftest import DIGITS
from tests.launch.study_sandbox import end_all, submitted
from train.__main__ import main as train

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as a second user"),
    pytest.mark.usefixtures("slurm"),
]
THEIRS = 65534


def give_away(folder: Path) -> None:
    """Make a folder that of another user, as if he had planted it."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, THEIRS, THEIRS, follow_symlinks=False)


def test_a_planted_study_is_not_continued(study: Path, launch, site: Path) -> None:
    ours = submitted(launch, study)
    end_all(ours, but=("a40_bs8",))
    site.chmod(0o1777)
    theirs = ours.path.with_name(f"{ours.path.name}z")
    shutil.copytree(ours.path, theirs)
    (theirs / "cells" / "a40_bs8" / "config.yaml").write_text("kind: command\nrun: evil\n")
    give_away(theirs)
    code, out, err = launch("submit", study)
    assert (code, out.splitlines()[0]) == (0, f"study: {ours.path}")
    assert f"passes over {theirs}: {theirs}: belongs to another user" in err
    shutil.rmtree(ours.path)
    assert submitted(launch, study).path not in (ours.path, theirs)


def test_only_a_study_whose_cells_hold_its_configs_is_continued(study: Path, launch) -> None:
    folder = submitted(launch, study)
    end_all(folder, but=("a40_bs8",))
    file = RunFolder(folder.cell("a40_bs8")).config_file
    before = file.read_text()
    # The same keys in other words are the same config.
    file.write_text(f"# mine\n{before}")
    assert submitted(launch, study).path == folder.path
    for text in ("kind: command\nrun: evil\n", before.replace("steps: 10", "steps: 11"), "x: ["):
        assert text != before
        file.write_text(text)
        out, err = launch("plan", study, "--script")[1:]
        assert f"passes over {folder.path}: " in err
        assert str(folder.path) not in out


@pytest.mark.parametrize("place", ["", "cells", "cells.tsv", "cells/a40_bs8/config.yaml"])
def test_a_study_in_part_of_another_user_is_refused(study: Path, launch, place: str) -> None:
    folder = submitted(launch, study)
    os.chown(folder.path / place, THEIRS, THEIRS)
    for words in (["submit", folder.path], ["rerun", folder.path], ["cancel", folder.path]):
        code, _, err = launch(*words)
        assert code == 2
        assert "belongs to another user (uid 65534), who could run code as you" in err
    assert not (folder.path / "STOP").exists()


def own_run(launch) -> RunFolder:
    code, out, err = launch("submit", DIGITS)
    assert code == 0, err
    return RunFolder(Path(out.splitlines()[0].removeprefix("run: ")))


@pytest.mark.parametrize("place", ["", "config.yaml", "attempts"])
def test_a_run_in_part_of_another_user_is_neither_resumed_nor_cancelled(
    launch, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = own_run(launch)
    os.chown(run.path / place, THEIRS, THEIRS)
    before = run.metrics_file.read_bytes()
    for name in ("submit", "rerun", "cancel"):
        code, _, err = launch(name, run.path)
        assert (code, "belongs to another user" in err) == (2, True)
    assert runs(["open", str(run.path)]) == 2
    assert "belongs to another user" in capsys.readouterr().err
    assert (run.metrics_file.read_bytes(), run.attempts()) == (before, [])


def test_no_engine_runs_for_another_user(launch, capsys: pytest.CaptureFixture[str]) -> None:
    run = own_run(launch)
    run.attempt(1).mkdir()
    give_away(run.path)
    assert train([str(run.path)]) == 2
    assert "belongs to another user" in capsys.readouterr().err


def test_no_cell_of_another_user_or_in_their_study_runs(
    study: Path, launch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder: StudyFolder = submitted(launch, study)
    first, second = (folder.cell(row.cell) for row in folder.rows()[:2])
    give_away(first)
    assert runs(["open", str(first)]) == 2
    assert "belongs to another user" in capsys.readouterr().err
    os.chown(folder.path, THEIRS, THEIRS)
    assert runs(["open", str(second)]) == 2
    assert f"{folder.path}: belongs to another user" in capsys.readouterr().err
