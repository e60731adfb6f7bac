#!/usr/bin/env bash
# One torchrun agent and its ranks, started once per node with what jobs/agents.sh exports.
set -euo pipefail

# torchrun dies of USR1 and kills its ranks at TERM. What is ignored here stays ignored in it,
# while every rank listens for itself, saves and leaves.
trap '' USR1 TERM

# shellcheck source=jobs/agents.sh
source "$ROOT/jobs/agents.sh"
ranks=$(count_gpus)
if [[ -z ${SLURM_GPUS_ON_NODE-} && -n $RANKS_PER_NODE ]]; then
  ranks=$RANKS_PER_NODE
fi
((ranks)) || ranks=1

# nproc answers with OMP_NUM_THREADS where it is set.
cores=$(env -u OMP_NUM_THREADS nproc)
asked=${SLURM_CPUS_PER_TASK:-${SLURM_CPUS_ON_NODE:-$cores}}
((asked < cores)) && cores=$asked
[[ -n ${SLURM_JOB_ID-} ]] || cores=$((cores / AGENT_NODES))
# Always set: torchrun sets 1 for several ranks and leaves one rank all cores.
threads=$((cores / ranks))
export OMP_NUM_THREADS=$((threads > 0 ? threads : 1))

arguments=(
  --nnodes="$AGENT_NODES"
  --nproc-per-node="$ranks"
  --max-restarts=0
  --log-dir="$ATTEMPT/torchrun"
)
if ((AGENT_NODES == 1)); then
  arguments+=(--standalone)
else
  arguments+=(
    --rdzv-backend=c10d
    --rdzv-endpoint="$AGENT_HEAD:$AGENT_PORT"
    --rdzv-id="$AGENT_ID"
  )
fi
# Older torch has no such option, and by default kills the ranks at the INT of a Ctrl-C.
launcher=$(python -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')
if grep -q -e --signals-to-handle "$launcher/distributed/run.py"; then
  arguments+=("--signals-to-handle=SIGHUP,SIGQUIT")
fi

exec torchrun "${arguments[@]}" -m "$ENGINE" "${ATTEMPT%/attempts/*}" --attempt "${ATTEMPT##*/}"
