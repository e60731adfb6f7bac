"""`plan --measure`: time a minute of the true config on each type of GPU, in the queue or here.

`python -m train measure` keeps the seconds of a step by config, GPU and torch in the user's cache,
where later plans find them.
"""

import subprocess
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor

from configs.errors import ConfigError
from configs.load import merge, resolve, to_tree
from configs.schema import Pretrain
from launch.plan.result import CheckResult, failure, passed, warning
from launch.slurm import client
from launch.slurm.flags import to_words
from launch.submit.script import RunRequest, overrides_from
from launch.submit.site import read_site
from runs.folder import ROOT

_RUN = """
exec 2>&1
root=$1 ranks=$2
shift 2
source "$root/env/activate.sh" || exit
# As in a job: torchrun sets 1 for several ranks, and activate.sh all cores for each.
threads=$(($(env -u OMP_NUM_THREADS nproc) / ranks))
export OMP_NUM_THREADS=$((threads > 0 ? threads : 1))
cd "$root" && exec torchrun --standalone --nproc-per-node="$ranks" -m train measure "$@"
"""


def measure(request: RunRequest) -> Iterator[CheckResult]:
    """Measure on every type of GPU of the cluster, or here without one; say what was measured."""
    if not isinstance(request.config, Pretrain):
        yield warning("measured", f"only pretraining is measured, not kind {request.config.kind}")
        return
    if request.config.resources.nodes > 1:
        yield warning("measured", "only runs of one node are measured", "resources.nodes=1")
        return
    asked = request.config.resources.gpu
    names: list[str | None] = [name for name in _types(request) if asked in (None, name)]
    with ThreadPoolExecutor(max(1, len(names))) as pool:
        yield from pool.map(lambda name: _measured_on(request, name), names or [None])


def _types(request: RunRequest) -> Collection[str | None]:
    """Return the types of GPU that the run can get on the cluster; none without GPUs or Slurm."""
    if not request.config.resources.gpus_per_node:
        return ()
    partition = str((request.site.flags | request.flags).get("partition", "")) or None
    try:
        return client.gpus(partition)
    except client.NoSlurm:
        return ()


def _measured_on(request: RunRequest, gpu: str | None) -> CheckResult:
    """Measure on one node with a type of GPU, or here, and return its answer."""
    resources = request.config.resources
    ranks = resources.gpus_per_node or resources.ranks_per_node or 1
    yaml, own = request.query
    words = ["bash", "-c", _RUN, "bash", str(ROOT), str(ranks), str(yaml.absolute()), *own]
    if gpu is None:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    else:
        changes = {"resources.gpu": gpu}
        try:
            config = resolve(merge(to_tree(request.config), changes), source=str(request.source))
            site = read_site(ROOT, config.resources, name=request.site.name)
        except ConfigError as error:
            return failure(f"measured {gpu}", str(error))
        exports = [f"{name}={value}" for name, value in site.exports().items()]
        flags = to_words(site.flags | request.flags)
        done = client.run_on_node("env", *exports, *words, *overrides_from(changes), flags=flags)
    lines = (done.stdout or done.stderr or "no answer").strip().splitlines()
    topic = f"measured {gpu or 'here'}"
    return passed(topic, lines[-1]) if done.returncode == 0 else failure(topic, lines[-1])
