"""Refuse a submission with every reason at once."""

from collections.abc import Iterable

from configs.errors import ConfigError
from launch.plan.result import CheckResult
from launch.slurm.client import Refused


def enforce(results: Iterable[CheckResult], *, force: bool) -> list[str]:
    """Raise the failures as one error; return the remarks. `force` makes failures remarks."""
    found = list(results)
    failed = [one for one in found if one.error or one.level == "fail"]
    reasons = list(dict.fromkeys(str(one.error or one.text) for one in failed))
    if failed and not force:
        kind = ConfigError if isinstance(failed[0].error, ConfigError) else Refused
        raise kind("\n".join(reasons))
    remarks = dict.fromkeys(line for one in found for line in one.remarks)
    return [*(f"warning: {one}" for one in reasons), *remarks]
