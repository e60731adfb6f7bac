# shellcheck shell=bash
# Start, signal and wait for the torchrun agents of a job: by srun, or on this machine without Slurm.

AGENTS=()
# Traps increment this, to distinguish a wait that a signal interrupted from the end of an agent.
SIGNALS=0

count_nodes() {
  echo "${SLURM_NNODES:-${LOCAL_NODES:-1}}"
}

# Print the GPUs of this node. Print nothing in the shell of an salloc: only its steps know.
count_gpus() {
  local devices=(/dev/nvidia[0-9]*)
  if [[ -n ${SLURM_GPUS_ON_NODE-} ]]; then
    echo "$SLURM_GPUS_ON_NODE"
  elif [[ -n ${SLURM_JOB_ID-} ]]; then
    [[ ${ENVIRONMENT-} != BATCH && -z ${SLURM_STEP_ID-} ]] || echo 0
  elif [[ -n ${CUDA_VISIBLE_DEVICES+set} ]]; then
    IFS=, read -ra devices <<<"$CUDA_VISIBLE_DEVICES"
    echo "${#devices[@]}"
  elif [[ -e ${devices[0]} ]]; then
    echo "${#devices[@]}"
  else
    echo 0
  fi
}

# Print the address of the first node, as the other nodes reach it.
head_address() {
  local head address
  if [[ -z ${SLURM_JOB_ID-} ]]; then
    echo 127.0.0.1
    return
  fi
  head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
  address=$(scontrol show node -o "$head" | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')
  if [[ -z $address ]]; then
    echo "scontrol gives no address for node '$head'" >&2
    return 1
  fi
  echo "$address"
}

start_agents() {
  local nodes hash i
  nodes=$(count_nodes)
  hash=$(printf '%s' "$ATTEMPT" | cksum)
  hash=${hash%% *}
  export ATTEMPT ENGINE ROOT AGENT_NODES=$nodes AGENT_ID=ditbench-$hash
  AGENT_HEAD=$(head_address)
  # Not a fixed port: on a shared node a second job would join the store of the first.
  # Below 32768, where the ports of outgoing connections begin.
  AGENT_PORT=$((20000 + hash % 12000))
  RANKS_PER_NODE=$(python -m configs show "${ATTEMPT%/attempts/*}" --key resources.ranks_per_node)
  export AGENT_HEAD AGENT_PORT RANKS_PER_NODE
  local output=$ATTEMPT/output.log
  : >>"$output"
  if [[ -n ${SLURM_JOB_ID-} ]]; then
    export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK-}
    [[ -n $SRUN_CPUS_PER_TASK ]] || unset SRUN_CPUS_PER_TASK
    # The runs of an salloc session share its resources: without --overlap a second run would wait.
    srun --overlap --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 \
      --kill-on-bad-exit=1 --wait=60 \
      bash "$ROOT/jobs/agent.sh" >>"$output" 2>&1 &
    AGENTS=("$!")
  else
    for ((i = 0; i < nodes; i++)); do
      bash "$ROOT/jobs/agent.sh" >>"$output" 2>&1 &
      AGENTS+=("$!")
    done
  fi
  if [[ ${ENVIRONMENT-} != BATCH ]]; then
    tail -n +1 --follow --sleep-interval=0.5 --pid="${AGENTS[0]}" "$output" &
    FOLLOWER=$!
  fi
}

signal_agents() {
  local agent
  for agent in "${AGENTS[@]}"; do
    kill -s "$1" "$agent" 2>/dev/null || true
  done
}

# Kill srun if it is still there a minute after the ranks recorded their end: an srun whose slurmstepd
# was killed on a node never learns that its ranks have left, and would hold the job to its time limit.
# Python is started only when no record was written for a minute, once per such pause.
end_late_agents() {
  local records=${ATTEMPT%/attempts/*}/metrics.jsonl seen='' now quiet_s=0
  while true; do
    sleep 5
    now=$(stat -c '%y %s' "$records" 2>/dev/null) || continue
    if [[ $now != "$seen" ]]; then
      seen=$now quiet_s=0
      continue
    fi
    quiet_s=$((quiet_s + 5))
    if ((quiet_s == 60)) && python -m configs ended "$ATTEMPT"; then
      break
    fi
  done
  echo "the ranks ended a minute ago, srun has not: killing it"
  signal_agents KILL
}

# Wait for all agents, also across signals; return the status of the first that failed.
wait_for_agents() {
  local agent status before watch='' result=0
  if [[ -n ${SLURM_JOB_ID-} ]]; then
    end_late_agents &
    watch=$!
  fi
  for agent in "${AGENTS[@]}"; do
    # A trapped signal ends the wait, not the agent.
    while true; do
      before=$SIGNALS status=0
      wait "$agent" || status=$?
      ((SIGNALS == before)) && break
    done
    ((result)) || result=$status
  done
  [[ -z $watch ]] || kill "$watch" 2>/dev/null || true
  [[ -z ${FOLLOWER-} ]] || wait "$FOLLOWER" 2>/dev/null || true
  return "$result"
}
