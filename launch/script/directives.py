"""Read what a batch script asks Slurm for: for the config of its run, not for sbatch."""

import re
import shlex
from typing import Any

from launch.lint.script import Script, sbatch_flags
from launch.slurm import client

_SIGNAL = re.compile(r"[BR]*B[BR]*:(?:SIG)?(USR1|USR2|TERM)(?:@\d+)?", re.IGNORECASE)


def sbatch_options(script: Script, flags: list[str]) -> dict[str, str]:
    """Return the values of a script's `#SBATCH` lines by long name; values in `flags` win."""
    own = {name: one.value for name, one in script.directives.items()}
    return own | dict(sbatch_flags(shlex.join(flags)))


def signal_of(options: dict[str, str]) -> str | None:
    """Return the signal that Slurm sends the batch script near its limit; None if none."""
    found = _SIGNAL.fullmatch(options.get("signal", ""))
    return found[1].upper() if found else None


def resources_of(options: dict[str, str]) -> dict[str, Any]:
    """Return the nodes, GPUs and hours; a request that is not understood counts as none."""
    nodes = max([1, *map(int, re.findall(r"\d+", options.get("nodes", "1")))])
    named = next((options[key] for key in ("gpus-per-node", "gres", "gpus") if key in options), "")
    gpu = re.search(r"(?:gpu:)?(?:([A-Za-z][\w.-]*):)?(\d+)$", named.removeprefix("gpu:"))
    count = int(gpu[2]) if gpu else 0
    if gpu and "gpus-per-node" not in options and "gres" not in options:
        count = -(-count // nodes)
    time_s = client.parse_duration(options.get("time", ""))
    return {
        "nodes": nodes,
        "gpus_per_node": count,
        "gpu": gpu[1] if gpu else None,
        **({"hours": round(time_s / 3600, 4)} if time_s else {}),
    }
