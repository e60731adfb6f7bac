"""Whether the cluster can do what a job asks for, before it is queued."""

from dataclasses import dataclass

from launch.slurm import client, duration
from launch.slurm.client import Partition, Refused
from launch.slurm.flags import Flags


def check(flags: Flags, text: str, *, known: list[Partition] | None = None) -> list[str]:
    """Refuse what would never start; the answer is remarks about what was let pass.

    `sbatch --test-only` judges GPUs, nodes, accounts and features, but lets a time over the
    partition's limit pass, and refuses what only waits for nodes that are down. `known` are the
    partitions, where they were asked for already.
    """
    _check_partition(flags, client.partitions() if known is None else known)
    answer = client.run("sbatch", "--test-only", text=text)
    if answer.returncode == 0:
        return []
    said = answer.stderr.strip()
    if "node configuration is not available" in said and client.has_lost_nodes():
        return [f"some nodes are down or drained: sbatch has the last word ({said})"]
    asked = " ".join(f"--{name}={flags[name]}" for name in _SHAPE if name in flags)
    raise Refused(
        f"sbatch refuses {asked or 'this job'}:\n{said}\n"
        "change resources.gpu, resources.nodes, resources.gpus_per_node or the site's flags; "
        "`sinfo -o '%P %D %G %l'` lists what there is"
    )


# What decides whether nodes can take a job.
_SHAPE = (
    "partition", "constraint", "nodes", "gpus", "gpus-per-node", "gpus-per-task", "gres",
    "cpus-per-task", "mem",
)  # fmt: skip


def _check_partition(flags: Flags, known: list[Partition]) -> None:
    named = str(flags.get("partition", "")).split(",")
    chosen = [one for one in known if one.name in named or (named == [""] and one.is_default)]
    if not chosen and named != [""]:
        there = ", ".join(one.name for one in known)
        raise Refused(f"there is no partition {', '.join(named)}; there are {there}")
    wish = _Wish(
        time_s=duration.seconds(str(flags.get("time", ""))), nodes=_count(str(flags["nodes"]))
    )
    if not chosen or any(_fits(one, wish) for one in chosen):
        return
    others = ", ".join(one.name for one in known if _fits(one, wish))
    mend = f", or take a partition that allows it: {others}" if others else ""
    raise Refused(f"{_excess(chosen[0], wish, flags)}{mend}")


@dataclass(frozen=True, kw_only=True)
class _Wish:
    time_s: int | None
    nodes: int


def _count(nodes: str) -> int:
    most = nodes.rpartition("-")[2]
    return int(most) if most.isdigit() else 1


def _excess(partition: Partition, wish: _Wish, flags: Flags) -> str:
    name = partition.name
    if partition.most_nodes is not None and wish.nodes > partition.most_nodes:
        return (
            f"partition {name} allows {partition.most_nodes} nodes a job, not {wish.nodes}: "
            "lower resources.nodes"
        )
    return (
        f"partition {name} allows {duration.spell(partition.most_seconds or 0)}, "
        f"not {flags['time']}: lower resources.hours"
    )


def _fits(partition: Partition, wish: _Wish) -> bool:
    short = partition.most_seconds is None or (
        wish.time_s is not None and wish.time_s <= partition.most_seconds
    )
    return short and (partition.most_nodes is None or wish.nodes <= partition.most_nodes)
