"""The environment of the user's shell, as it was before ditbench was activated in it."""

import os
import sys
from collections.abc import Mapping

from runs.folder import ROOT
from runs.slurm_env import first_environment

# What env/activate.sh and env/ditbench.sh set, with the value of the user's kept as BEFORE_NAME.
_SET = (
    "PYTHONPATH", "PYTHONSAFEPATH", "VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT", "OMP_NUM_THREADS",
    "LOGS", "UMASK", "TRUSTED", "SITE", "AI_TOOLKIT", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME",
)  # fmt: skip


def users_environment(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that a batch script gets, those of ditbench removed or put back."""
    now = dict(first_environment() if given is None else given)
    if now.pop("ACTIVATED", None) is None:
        return now
    for name in _SET:
        before = now.pop(f"BEFORE_{name}", None)
        if before is not None:
            now[name] = before
        elif _is_ours(name, now.get(name, "")):
            now.pop(name, None)
    ours = os.path.join(sys.prefix, "bin")
    now["PATH"] = os.pathsep.join(one for one in now["PATH"].split(os.pathsep) if one != ours)
    return {name: value for name, value in now.items() if not name.startswith("ACTIVATED_")}


def _is_ours(name: str, value: str) -> bool:
    """Return whether a variable still has the value that the activation gave it."""
    if name == "OMP_NUM_THREADS":
        return value == str(len(os.sched_getaffinity(0)))
    return name != "PYTHONPATH" or value == str(ROOT)
