# shellcheck shell=bash
# A site file to copy: env/sites/<cluster>.sh describes one cluster, in shell. Everything but
# site_flags may be left out. It is chosen by SITE=<cluster>, by --site <cluster>, or where the name
# of the host (hostname -f) fits one of its lines of this form:
# host: *.cluster.example.edu

# Environment modules, loaded in this order before the virtualenv is activated.
# shellcheck disable=SC2034
MODULES=()
#   MODULES=(gcc/12.3.0 python/3.11.4 git)

# Where runs are kept: scratch space that all nodes see. The default is logs/ of the checkout.
#   LOGS=${LOGS:-/scratch/$(id -un)/ditbench}

# Where the virtualenv is. The default is .venv of the checkout.
#   VENV=${VENV:-/project/lab/ditbench-venv}

# Who may read the runs: 077 the owner alone (the default), 027 the group too.
#   UMASK=027

# The build of torch, where that of env/torch.txt does not fit the driver.
#   TORCH="torch==2.8.0 torchvision==0.23.0"
#   TORCH_INDEX=https://download.pytorch.org/whl/cu126

# The interface that nodes reach one another by, where it is not found by itself (`ip -br addr`).
#   NETWORK_INTERFACE=ib0

# A checkout of ai-toolkit, for fine-tuning with it: `env/create.sh ai-toolkit` makes it there.
#   AI_TOOLKIT=$HOME/ai-toolkit

# Flags that the launcher gives to sbatch and env/interactive.sh to salloc, each one word.
# shellcheck disable=SC2034
JOB_FLAGS=()
#   JOB_FLAGS=(--account=lab_123 --partition=gpu)

# The flags that ask for GPUs, one per line: site_flags GPU NODES GPUS_PER_NODE. GPU is a type, or
# empty for any. One task per node, whatever the spelling: the task is torchrun's agent.
site_flags() {
  printf '%s\n' "--nodes=$2" --ntasks-per-node=1 "--gpus-per-node=${1:+$1:}$3"
}
# Other clusters take GPUs otherwise; `sbatch --test-only` tells whether yours does:
#   "--gpus-per-task=$1:$3"                            all GPUs of the node to its one task
#   "--gres=gpu:$1:$3"                                 where --gpus-per-node is not known
#   "--constraint=$1" "--gpus=$(($2 * $3))"            types are features of nodes
