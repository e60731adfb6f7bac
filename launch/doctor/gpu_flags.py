"""Which spelling of GPUs sbatch takes, asked by --test-only for each type that sinfo lists."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from launch.slurm import client

# As a site file would have them: $1 the type (or nothing), $2 nodes, $3 GPUs per node.
SPELLINGS = {
    "--gpus-per-node=TYPE:N": ('"--gpus-per-node=${1:+$1:}$3"',),
    "--gpus-per-task=TYPE:N": ('"--gpus-per-task=${1:+$1:}$3"',),
    "--gres=gpu:TYPE:N": ('"--gres=gpu:${1:+$1:}$3"',),
    "--constraint=TYPE --gpus=N": ('${1:+"--constraint=$1"}', '"--gpus=$(($2 * $3))"'),
}
_NONE = "no-such-gpu"


@dataclass(frozen=True, kw_only=True)
class Gpus:
    """A type of GPU, how many a node has, and the spellings that sbatch takes for it."""

    kind: str
    most: int
    accepted: list[str]


def gpus(flags: Sequence[str]) -> list[Gpus]:
    """Every type of GPU that sinfo lists, in the partition that the flags name."""
    partition = [flag for flag in flags if flag.startswith("--partition=")]
    listed = client.run("sinfo", "-h", "-o", "%G", *partition).stdout
    kinds: dict[str, int] = {}
    for kind, count in re.findall(r"\bgpu:(?:([A-Za-z][\w.-]*):)?(\d+)", listed):
        kinds[kind] = max(int(count), kinds.get(kind, 0))
    return [
        Gpus(kind=kind, most=most, accepted=[s for s in SPELLINGS if _takes(s, kind, most, flags)])
        for kind, most in sorted(kinds.items())
    ]


def discriminates(flags: Sequence[str]) -> bool:
    """Whether --test-only refuses a type that does not exist; otherwise it tells nothing."""
    return not _takes("--gpus-per-node=TYPE:N", _NONE, 1, flags)


def _takes(spelling: str, kind: str, count: int, flags: Sequence[str]) -> bool:
    typed = spelling if kind else spelling.replace("--constraint=TYPE ", "").replace("TYPE:", "")
    words = [word.replace("TYPE", kind).replace("N", str(count)) for word in typed.split()]
    shape = ["--nodes=1", "--ntasks-per-node=1", "--time=1", *words]
    return client.run("sbatch", "--test-only", *flags, *shape, text="#!/bin/sh\n").returncode == 0


def best(found: Sequence[Gpus]) -> str | None:
    """The first spelling that all types are taken in."""
    common = [s for s in SPELLINGS if all(s in one.accepted for one in found)]
    return common[0] if found and common else None
