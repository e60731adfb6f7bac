"""`plan --measure`: time a minute of the true config on a node of the cluster, or here.

`python -m train measure` keeps the seconds of a step by config, GPU and torch in the user's cache,
where later plans find them.
"""

import subprocess
from contextlib import suppress

from configs.load import flatten, read_tree, to_tree
from configs.schema import Pretrain
from configs.yaml12 import dump_value
from launch.plan.result import CheckResult, failure, passed, warning
from launch.slurm import client
from launch.slurm.flags import to_words
from launch.submit.script import RunRequest
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


def measure(request: RunRequest) -> CheckResult:
    """Measure on a node that Slurm gives the run, or here without GPUs or Slurm."""
    resources = request.config.resources
    if not isinstance(request.config, Pretrain):
        return warning("measured", f"only pretraining is measured, not kind {request.config.kind}")
    if resources.nodes > 1:
        return warning("measured", "only runs of one node are measured", "resources.nodes=1")
    ranks = resources.gpus_per_node or resources.ranks_per_node or 1
    yaml, own = request.source, request.overrides
    if request.resumes:
        yaml = request.resumes.config_file
        known, now = flatten(read_tree(yaml)), flatten(to_tree(request.config))
        changes = {name: value for name, value in now.items() if known.get(name) != value}
        own = [f"{name}={dump_value(value)}" for name, value in changes.items()]
    words = ["bash", "-c", _RUN, "bash", str(ROOT), str(ranks), str(yaml.absolute()), *own]
    exports = [f"{name}={value}" for name, value in request.site.exports().items()]
    flags = to_words(request.site.flags | request.flags)
    done = None
    if resources.gpus_per_node:
        with suppress(client.NoSlurm):
            done = client.run_on_node("env", *exports, *words, flags=flags)
    if done is None:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    last = (done.stdout or done.stderr or "no answer").strip().splitlines()[-1]
    return (failure if done.returncode else passed)("measured", last)
