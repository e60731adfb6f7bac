# shellcheck shell=bash
# A machine of one's own: no modules, no Slurm, everything in the checkout.
#
# To describe a cluster, copy this file to env/sites/<cluster>.sh and set what differs. It is
# chosen by SITE=<cluster>, or by lines such as `# host: *.example.edu` (one a line) in it.

# Environment modules to load, in order: MODULES=(gcc/12.3.0 python/3.11.4 git)
# shellcheck disable=SC2034
MODULES=()

# Where runs are kept; on a cluster, scratch space that all nodes see: LOGS=/scratch1/$USER/ditbench
# Whose files may be read: 077 is the owner alone, 027 opts the group in: UMASK=027

# The torch build, where PyPI's does not fit the driver:
#   TORCH="torch==2.8.0 torchvision==0.23.0"
#   TORCH_INDEX=https://download.pytorch.org/whl/cu126

# The interface that nodes reach one another by, where it is not found by itself: NETWORK_INTERFACE=ib0
# A checkout of ai-toolkit: AI_TOOLKIT=/home1/$USER/ai-toolkit

# The sbatch flags that ask for GPUs here, one per line: site_flags GPU NODES GPUS_PER_NODE
site_flags() {
  printf '%s\n' "--nodes=$2" "--ntasks-per-node=1" "--gpus-per-node=$1:$3"
}
