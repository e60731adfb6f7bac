#!/usr/bin/env bash
# Job of `launch card`: measure a kind of node into card.json, by ranks as those of a run.
#SBATCH --job-name=card
#SBATCH --time=10
#SBATCH --ntasks-per-node=1
#SBATCH --output=card.out
set -euo pipefail
# ROOT, and the variables of the site.
# shellcheck disable=SC1091
source ./environment
# shellcheck source=env/activate.sh
source "$ROOT/env/activate.sh"
export ROOT PYTHONSAFEPATH=1 ENGINE=card ATTEMPT=$PWD
export AGENT_NODES=$SLURM_NNODES RANKS_PER_NODE=
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK-}
[[ -n $SRUN_CPUS_PER_TASK ]] || unset SRUN_CPUS_PER_TASK
srun --kill-on-bad-exit=1 bash "$ROOT/jobs/agent.sh"
