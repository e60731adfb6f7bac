#!/usr/bin/env bash
# Run one torchrun agent and its ranks; jobs/agents.sh starts it once per node, in the container if there is one.
set -euo pipefail

# By default USR1 kills torchrun, and at TERM torchrun kills its ranks. Signals ignored here stay
# ignored in torchrun; every rank installs its own handlers, saves and exits. At the HUP of a closed
# terminal the body writes the file STOP.
trap '' USR1 TERM HUP

# shellcheck source=jobs/agents.sh
source "$ROOT/jobs/agents.sh"
# shellcheck source=jobs/environment.sh
source "$ROOT/jobs/environment.sh"
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
# By default the ranks of a node compile with 32 processes each.
set_default TORCHINDUCTOR_COMPILE_THREADS "$OMP_NUM_THREADS"
keep_kernels
if (($(count_gpus))); then
  set_gpu_defaults
fi

arguments=(
  --nnodes="$AGENT_NODES"
  --nproc-per-node="$ranks"
  --max-restarts=0
  --log-dir="$ATTEMPT/torchrun"
)
if [[ -n ${SLURM_JOB_ID-} ]] && ((AGENT_NODES > 1)); then
  # The c10d rendezvous unpickles from a TCP store that anybody can write to, the static one does
  # not. The first node chooses port and id, and the mode of the file keeps them from other users.
  rendezvous=$ATTEMPT/rendezvous
  if ((SLURM_PROCID == 0)); then
    address=$(own_address)
    port=$(python -c 'import socket; print(socket.create_server(("", 0)).getsockname()[1])')
    (umask 077 && echo "$address" "$port" "$(od -An -N16 -tx1 /dev/urandom | tr -d ' ')" >"$rendezvous.partial")
    mv "$rendezvous.partial" "$rendezvous"
  fi
  until [[ -f $rendezvous ]]; do sleep 0.2; done
  read -r address port id <"$rendezvous"
  peer=$address
  ((SLURM_PROCID)) || peer=$(another_address) || peer=
  set_gloo_interface "$peer"
  arguments+=(--node-rank="$SLURM_PROCID" --master-addr="$address" --master-port="$port")
else
  # On one machine agents and ranks share a file, and no TCP store is opened.
  [[ -n ${AGENT_STORE-} ]] || open_store
  export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
  arguments+=(--rdzv-backend=c10d --rdzv-endpoint="$AGENT_STORE")
  arguments+=("--rdzv-conf=store_type=file,keep_alive_interval=600")
fi
arguments+=(--rdzv-id="${id-ditbench}")
# By default torchrun kills the ranks at the INT of a Ctrl-C; older torch has no option for it.
launcher=$(python -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')
if grep -q -e --signals-to-handle "$launcher/distributed/run.py"; then
  arguments+=("--signals-to-handle=SIGQUIT")
fi

kinds=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | sort -u | paste -sd ,) || true
echo "starting torch on $(uname -n): ranks $ranks, GPUs $(count_gpus)${kinds:+ ($kinds)}," \
  "threads per rank $OMP_NUM_THREADS"
start_gpu_sampler "$ranks"
# The ranks end with this process.
export AGENT=$$
exec torchrun "${arguments[@]}" -m "$ENGINE" "${ATTEMPT%/attempts/*}" --attempt "${ATTEMPT##*/}"
