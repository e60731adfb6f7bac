"""A folder is continued or run from only if nobody else can have written it."""

import os
from pathlib import Path

import pytest

from configs.errors import ConfigError
from runs import trust
from runs.trust import check_own

THEIRS = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def is_own(folder: Path) -> bool:
    try:
        check_own(folder)
    except ConfigError:
        return False
    return True


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder with a file and a folder, below two others."""
    folder = tmp_path / "home" / "logs" / "run"
    (folder / "attempts" / "001").mkdir(parents=True)
    (folder / "config.yaml").write_text("")
    for path in (tmp_path / "home", *(tmp_path / "home").rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def test_a_folder_of_ours_passes_by_any_path_of_ours(run: Path, tmp_path: Path) -> None:
    check_own(run)
    (tmp_path / "link").symlink_to(run)
    check_own(tmp_path / "link")
    with pytest.raises(ConfigError, match="cannot be examined"):
        check_own(tmp_path / "nothing")


@needs_root
@pytest.mark.parametrize("place", ["home", "home/logs", "home/logs/run", "home/logs/run/attempts"])
@pytest.mark.parametrize("change", ["owner", "mode", "group", "sticky"])
def test_what_others_own_or_may_write_to_does_not(
    run: Path, tmp_path: Path, place: str, change: str
) -> None:
    path = tmp_path / place
    os.chown(path, THEIRS if change == "owner" else -1, THEIRS)
    path.chmod({"owner": 0o755, "mode": 0o777, "group": 0o775, "sticky": 0o1777}[change])
    # The sticky bit keeps others from renaming what is ours, and lets them add to the folder.
    expected = change == "sticky" and path != run and run not in path.parents
    assert is_own(run) == expected


@needs_root
@pytest.mark.parametrize("name", ["nobody", "nogroup", "nobody nogroup"])
def test_whom_the_site_trusts_may_own_or_write_to_folders_above_only(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    above = tmp_path / "home"
    os.chown(above, THEIRS, THEIRS)
    above.chmod(0o2770)
    with pytest.raises(ConfigError, match="TRUSTED"):
        check_own(run)
    monkeypatch.setenv("TRUSTED", name)
    assert is_own(run) == (name == "nobody nogroup")
    os.chown(run / "config.yaml", THEIRS, THEIRS)
    assert not is_own(run)
    monkeypatch.setenv("TRUSTED", "no-such-name")
    with pytest.raises(ConfigError, match="not the name of a user or a group"):
        check_own(run)


@needs_root
def test_files_further_down_count_if_they_are_run(run: Path) -> None:
    os.chown(run / "attempts" / "001", THEIRS, THEIRS)
    check_own(run)
    with pytest.raises(ConfigError, match=r"001: belongs to another user \(uid 65534\)"):
        check_own(run, deep=True)


@needs_root
def test_a_link_of_another_user_leads_nowhere(run: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(run)
    os.chown(link, THEIRS, THEIRS, follow_symlinks=False)
    for path in (link, link / "attempts"):
        with pytest.raises(ConfigError, match="link: belongs to another user"):
            check_own(path)


@needs_root
def test_a_private_group_may_write(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(run, -1, 12345)
    run.chmod(0o775)
    assert not is_own(run)
    monkeypatch.setattr(trust, "private_group", lambda: 12345)
    check_own(run)
    run.chmod(0o757)
    assert not is_own(run)
