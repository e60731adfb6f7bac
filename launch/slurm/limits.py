"""Check before submission whether the cluster can run a job."""

from collections.abc import Callable

from configs.terminal import plural
from launch.slurm import client
from launch.slurm.client import Partition, Refused
from launch.slurm.executor import BatchScript, sbatch_text
from launch.slurm.flags import Flags

# These flags decide which nodes can take a job.
_SHAPE = (
    "partition", "constraint", "nodes", "gpus", "gpus-per-node", "gpus-per-task", "gres",
    "cpus-per-task", "mem",
)  # fmt: skip


def check(
    script: BatchScript, *, partitions: Callable[[], list[Partition]] = client.partitions
) -> list[str]:
    """Raise `Refused` for a job that would never start; return remarks about what passed.

    `sbatch --test-only` judges GPUs, nodes, accounts and features, but accepts a time over the
    partition's limit. It also refuses a job that only has to wait for nodes that are down; that is
    a remark.
    """
    flags = script.flags
    _check_partition(flags, partitions())
    answer = client.test_only(sbatch_text(script))
    if answer.returncode == 0:
        return []
    error = answer.stderr.strip()
    if remarks := lost_nodes(error):
        return remarks
    shape = " ".join(f"--{name}={flags[name]}" for name in _SHAPE if name in flags)
    types = client.gpus().items()
    listed = [f"{kind or 'GPUs'} ({plural(n, 'node')} of {most})" for kind, (n, most) in types]
    here = f"this cluster has {', '.join(listed)}; " if listed else ""
    raise Refused(
        f"sbatch refuses {shape or 'this job'}:\n{error}\n{here}"
        "change resources.gpu, resources.nodes, resources.gpus_per_node or the site's flags"
    )


def lost_nodes(error: str) -> list[str]:
    """Return a remark on a refusal that nodes which are down or drained may explain, or none."""
    if "node configuration is not available" in error and client.has_lost_nodes():
        return [f"some nodes are down or drained, so sbatch decides at submission ({error})"]
    return []


def _check_partition(flags: Flags, partitions: list[Partition]) -> None:
    """Raise `Refused` if the partition does not exist or its time limit is too low."""
    named = str(flags.get("partition", "")).split(",")
    chosen = [one for one in partitions if one.name in named or (named == [""] and one.is_default)]
    if not chosen and named != [""]:
        available = ", ".join(one.name for one in partitions)
        raise Refused(f"no partition {', '.join(named)}; available: {available}")
    time_s = client.parse_duration(str(flags.get("time", "")))
    if not chosen or any(_allows(one, time_s) for one in chosen):
        return
    limit = client.format_duration(chosen[0].max_time_s or 0)
    others = ", ".join(one.name for one in partitions if _allows(one, time_s))
    fix = f", or use a partition that allows it: {others}" if others else ""
    raise Refused(
        f"partition {chosen[0].name} allows {limit}, not {flags['time']}: lower "
        f"resources.hours{fix}"
    )


def _allows(partition: Partition, time_s: int | None) -> bool:
    most = partition.max_time_s
    return most is None or (time_s is not None and time_s <= most)
