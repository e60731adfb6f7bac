# shellcheck shell=bash
# A site file to copy: env/sites/<cluster>.sh describes one cluster, in shell. Only site_flags is
# required. It is selected if the name of the host (hostname or hostname -f) matches one of its lines of
# this form, a pattern of the shell; SITE=<cluster> or --site <cluster> selects any:
# host: *.cluster.example.edu

# Environment modules, loaded in this order before the virtualenv is activated.
# shellcheck disable=SC2034
MODULES=()
#   MODULES=(gcc/12.3.0 python/3.11.4 git)

# The folder of all runs, on scratch space that all nodes can reach. Default: logs/ of the checkout.
#   LOGS=${LOGS:-/scratch/$(id -un)/ditbench}

# The virtualenv, also one of uv, or the folder of a conda environment (.../envs/NAME); env/create.sh adds
# what is missing. Default: .venv of the checkout.
#   VENV=${VENV:-/project/lab/ditbench-venv}

# An apptainer image, or its unpacked folder: training runs inside, on its python and torch, and needs the
# packages of env/light.txt and env/requirements.txt there; outside, `env/create.sh light` suffices. The code,
# LOGS, the caches and the paths of a config are at their places in it; APPTAINER_BIND adds others.
#   CONTAINER=${CONTAINER:-/project/lab/ditbench.sif}

# Who may read the runs: only the owner (077, the default), or also the group (027).
#   UMASK=027

# Users and groups that you trust with your account: they may own the folders above LOGS, and write to
# them, as on the storage of a lab. Without it such a LOGS is refused (docs/security.md).
#   TRUSTED="pi_name lab_group"

# The build of torch, if the one in env/torch.txt does not fit the driver.
#   TORCH="torch==2.8.0 torchvision==0.23.0"
#   TORCH_INDEX=https://download.pytorch.org/whl/cu126

# The network interface between nodes, if it is not found automatically (`ip -br addr`).
#   NETWORK_INTERFACE=ib0

# A checkout of ai-toolkit, for fine-tuning: `env/create.sh ai-toolkit` creates it there.
#   AI_TOOLKIT=$HOME/ai-toolkit

# Flags that the launcher passes to sbatch and env/interactive.sh to salloc; one word each.
# shellcheck disable=SC2034
JOB_FLAGS=()
#   JOB_FLAGS=(--account=lab_123 --partition=gpu)

# site_flags GPU NODES GPUS_PER_NODE: print the flags that request GPUs, one per line. GPU is a type,
# or empty for any. Keep one task per node in every spelling: the task is the torchrun agent.
site_flags() {
  printf '%s\n' "--nodes=$2" --ntasks-per-node=1 "--gpus-per-node=${1:+$1:}$3"
}
# Other spellings; `sbatch --test-only` shows whether your cluster accepts one:
#   "--gpus-per-task=$1:$3"                            all GPUs of a node for its one task
#   "--gres=gpu:$1:$3"                                 if --gpus-per-node is unknown
#   "--constraint=$1" "--gpus=$(($2 * $3))"            if GPU types are node features
