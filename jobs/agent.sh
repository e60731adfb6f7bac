#!/usr/bin/env bash
# Run one torchrun agent and its ranks; jobs/agents.sh starts it once per node.
set -euo pipefail

# By default USR1 kills torchrun, and at TERM torchrun kills its ranks. Signals ignored here stay
# ignored in torchrun; every rank installs its own handlers, saves and exits.
trap '' USR1 TERM

# shellcheck source=jobs/agents.sh
source "$ROOT/jobs/agents.sh"
ranks=$(count_gpus)
if [[ -z ${SLURM_GPUS_ON_NODE-} && -n $RANKS_PER_NODE ]]; then
  ranks=$RANKS_PER_NODE
fi
((ranks)) || ranks=1

# If OMP_NUM_THREADS is set, nproc prints that instead of the cores.
cores=$(env -u OMP_NUM_THREADS nproc)
available=${SLURM_CPUS_PER_TASK:-${SLURM_CPUS_ON_NODE:-$cores}}
((available < cores)) && cores=$available
[[ -n ${SLURM_JOB_ID-} ]] || cores=$((cores / AGENT_NODES))
# Always set it: torchrun sets 1 for several ranks, and nothing for a single rank.
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
# By default torchrun kills the ranks at the INT of a Ctrl-C; older torch has no option for it.
launcher=$(python -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')
if grep -q -e --signals-to-handle "$launcher/distributed/run.py"; then
  arguments+=("--signals-to-handle=SIGHUP,SIGQUIT")
fi

exec torchrun "${arguments[@]}" -m "$ENGINE" "${ATTEMPT%/attempts/*}" --attempt "${ATTEMPT##*/}"
