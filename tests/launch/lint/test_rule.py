"""Ranges of versions hold where Slurm's release notes say so."""

import pytest

from launch.lint.lint import changes
from launch.lint.rule import VersionRange


@pytest.mark.parametrize(
    ("since", "until", "inside", "outside"),
    [
        ("22.05", "23.11", ["22.05", "22.05.8", "23.02.7"], ["20.11.4", "23.11", "24.11.5"]),
        (None, "25.05.3", ["24.11.5", "25.05.2"], ["25.05.3", "26.05.5"]),
        ("26.05", None, ["26.05", "26.11.1"], ["25.11.7"]),
    ],
)
def test_a_range_holds_from_its_first_version_to_before_its_last(
    since: str | None, until: str | None, inside: list[str], outside: list[str]
) -> None:
    versions = VersionRange(since=since, until=until)
    assert all(versions.holds(version) for version in inside)
    assert not any(versions.holds(version) for version in outside)
    assert versions.holds(None)


def test_a_change_that_needs_a_setting_is_named_only_where_it_is_set() -> None:
    stepmgr = "the first node of a job starts its steps: a job that loses it loses all steps"
    assert stepmgr in changes("24.11.5", "SlurmctldParameters = enable_stepmgr")
    assert stepmgr not in changes("24.11.5", "SlurmctldParameters = (null)")
    assert stepmgr not in changes("22.05.8", "SlurmctldParameters = enable_stepmgr")
