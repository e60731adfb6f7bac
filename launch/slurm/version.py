"""Ranges of versions of Slurm."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class VersionRange:
    """Versions of Slurm from `since` on and before `until`; None is no bound."""

    since: str | None = None
    until: str | None = None

    def holds(self, version: str | None) -> bool:
        """Return whether a version such as `24.11.5` is in the range; True if it is unknown."""
        if version is None:
            return True
        release = _numbers(version)
        begun = self.since is None or _numbers(self.since) <= release
        return begun and (self.until is None or release < _numbers(self.until))

    def __str__(self) -> str:
        if self.since and self.until:
            return f"Slurm {self.since} to before {self.until}"
        if self.until:
            return f"Slurm before {self.until}"
        return f"Slurm {self.since} or later" if self.since else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))
