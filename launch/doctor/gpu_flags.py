"""Find the flag syntax for GPUs that sbatch --test-only accepts, per type that sinfo lists."""

from collections.abc import Sequence
from dataclasses import dataclass

from launch.slurm import client

# As in a site file: $1 is the type or empty, $2 the nodes, $3 the GPUs per node.
SYNTAXES = {
    "--gpus-per-node=TYPE:N": ('"--gpus-per-node=${1:+$1:}$3"',),
    "--gpus-per-task=TYPE:N": ('"--gpus-per-task=${1:+$1:}$3"',),
    "--gres=gpu:TYPE:N": ('"--gres=gpu:${1:+$1:}$3"',),
    "--constraint=TYPE --gpus=N": ('${1:+"--constraint=$1"}', '"--gpus=$(($2 * $3))"'),
}
_NONE = "no-such-gpu"


@dataclass(frozen=True, kw_only=True)
class Gpus:
    """A type of GPU, the most that a node has, and the syntaxes that sbatch accepts for it."""

    kind: str
    most: int
    accepted: list[str]


def gpus(flags: Sequence[str]) -> list[Gpus]:
    """Return the GPU types that sinfo lists in the partition that the flags name."""
    named = [flag for flag in flags if flag.startswith("--partition=")]
    found = client.gpus(named[-1].partition("=")[2] if named else None)
    return [
        Gpus(kind=kind, most=most, accepted=[s for s in SYNTAXES if _accepts(s, kind, most, flags)])
        for kind, (_, most) in found.items()
    ]


def discriminates(flags: Sequence[str]) -> bool:
    """Return whether --test-only refuses an unknown type; if not, its answers mean nothing."""
    return not _accepts("--gpus-per-node=TYPE:N", _NONE, 1, flags)


def _accepts(syntax: str, kind: str, count: int, flags: Sequence[str]) -> bool:
    typed = syntax if kind else syntax.replace("--constraint=TYPE ", "").replace("TYPE:", "")
    words = [word.replace("TYPE", kind).replace("N", str(count)) for word in typed.split()]
    shape = ["--nodes=1", "--ntasks-per-node=1", "--time=1", *words]
    return client.test_only("#!/bin/sh\n", *flags, *shape).returncode == 0


def best(found: Sequence[Gpus]) -> str | None:
    """Return the first syntax that sbatch accepts for all types."""
    common = [s for s in SYNTAXES if all(s in one.accepted for one in found)]
    return common[0] if found and common else None
