# shellcheck shell=bash
# Discovery, the cluster of the Center for Advanced Research Computing, University of Southern
# California: https://www.carc.usc.edu
# host: discovery*.usc.edu
# host: *.hpc.usc.edu

# shellcheck disable=SC2034
MODULES=(gcc/12.3.0 python/3.11.4 git)

# Home folders are small and slow, so runs are kept on scratch space.
LOGS=${LOGS:-/scratch1/$(id -un)/ditbench}

# Add --account=NAME if you are in several projects.
# shellcheck disable=SC2034
JOB_FLAGS=(--partition=gpu)

# One task per node, the torchrun agent, gets all GPUs of the node.
site_flags() {
  printf '%s\n' "--nodes=$2" --ntasks-per-node=1 "--gpus-per-task=${1:+$1:}$3"
}
