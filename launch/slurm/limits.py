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
    raise Refused(
        f"sbatch refuses {shape or 'this job'}:\n{error}\n{_gpus_in_words()}"
        "change resources.gpu, resources.nodes, resources.gpus_per_node or the site's flags"
    )


def lost_nodes(error: str) -> list[str]:
    """Return a remark on a refusal that nodes which are down or drained may explain, or none."""
    if "node configuration is not available" in error and client.has_lost_nodes():
        return [f"some nodes are down or drained, so sbatch decides at submission ({error})"]
    return []


def _gpus_in_words() -> str:
    """Return the types of GPU of the cluster, as `this cluster has a40 (2 nodes of 2); `."""
    found = client.gpus().items()
    listed = [f"{kind or 'GPUs'} ({plural(n, 'node')} of {most})" for kind, (n, most) in found]
    return f"this cluster has {', '.join(listed)}; " if listed else ""


def _check_partition(flags: Flags, partitions: list[Partition]) -> None:
    """Raise `Refused` if the partition does not exist or its limits are too low."""
    named = str(flags.get("partition", "")).split(",")
    chosen = [one for one in partitions if one.name in named or (named == [""] and one.is_default)]
    if not chosen and named != [""]:
        available = ", ".join(one.name for one in partitions)
        raise Refused(f"no partition {', '.join(named)}; available: {available}")
    if not chosen or any(_excess(one, flags) is None for one in chosen):
        return
    others = ", ".join(one.name for one in partitions if _excess(one, flags) is None)
    fix = f", or use a partition that allows it: {others}" if others else ""
    raise Refused(f"{_excess(chosen[0], flags)}{fix}")


def _excess(partition: Partition, flags: Flags) -> str | None:
    """Return the limit of the partition that a job exceeds and the key to lower."""
    most = str(flags["nodes"]).rpartition("-")[2]
    nodes = int(most) if most.isdigit() else 1
    if partition.max_nodes is not None and nodes > partition.max_nodes:
        return (
            f"partition {partition.name} allows {partition.max_nodes} nodes per job, not {nodes}: "
            "lower resources.nodes"
        )
    time_s = client.parse_duration(str(flags.get("time", "")))
    if partition.max_time_s is not None and (time_s is None or time_s > partition.max_time_s):
        return (
            f"partition {partition.name} allows {client.format_duration(partition.max_time_s)}, "
            f"not {flags['time']}: lower resources.hours"
        )
    return None
