"""Whether the cluster can do what a job asks for, before it is queued."""

from launch import cluster, duration
from launch.cluster import Partition, Refused
from launch.flags import Flags


def check(flags: Flags, text: str) -> list[str]:
    """Refuse what would never start; the answer is remarks about what was let pass.

    `sbatch --test-only` judges GPUs, nodes, accounts and features, but lets a time over the
    partition's limit pass, and refuses what only waits for nodes that are down.
    """
    _check_partition(flags, cluster.partitions())
    answer = cluster.run("sbatch", "--test-only", text=text)
    if answer.returncode == 0:
        return []
    said = answer.stderr.strip()
    if "node configuration is not available" in said and cluster.has_lost_nodes():
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
    time = duration.seconds(str(flags.get("time", "")))
    nodes = str(flags.get("nodes", "1")).rpartition("-")[2]
    count = int(nodes) if nodes.isdigit() else 1
    if not chosen or any(_fits(one, time, count) for one in chosen):
        return
    one = chosen[0]
    if one.most_nodes is not None and count > one.most_nodes:
        wish, most, key = f"{count} nodes", f"{one.most_nodes}", "resources.nodes"
    else:
        wish, most = f"--time={flags['time']}", f"{(one.most_seconds or 0) / 3600:g} hours"
        key = "resources.hours"
    others = [other.name for other in known if _fits(other, time, count)]
    mend = f" or take one that allows it: --partition {', '.join(others)}" if others else ""
    raise Refused(f"partition {one.name} allows {most}, not {wish}: lower {key}{mend}")


def _fits(partition: Partition, time: int | None, nodes: int) -> bool:
    short = partition.most_seconds is None or (time is not None and time <= partition.most_seconds)
    return short and (partition.most_nodes is None or nodes <= partition.most_nodes)
