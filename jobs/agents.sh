# shellcheck shell=bash
# How the agents of a job are started, signalled and waited for: by srun, or here without Slurm.

AGENTS=()
# Traps count here, so that a wait cut short by one is told from an agent's end.
SIGNALS=0

count_nodes() {
  echo "${SLURM_NNODES:-${LOCAL_NODES:-1}}"
}

# GPUs of this node, 0 for none; nothing in the shell of an salloc, where only a step knows.
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

# The address that all nodes reach the first one by.
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
  # Not a fixed port: on a shared node a second job would join the first one's store.
  # Below 32768, where the ports for outgoing connections begin.
  AGENT_PORT=$((20000 + hash % 12000))
  RANKS_PER_NODE=$(python -m configs show "${ATTEMPT%/attempts/*}" --key resources.ranks_per_node)
  export AGENT_HEAD AGENT_PORT RANKS_PER_NODE
  local output=$ATTEMPT/output.log
  : >>"$output"
  if [[ -n ${SLURM_JOB_ID-} ]]; then
    export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK-}
    [[ -n $SRUN_CPUS_PER_TASK ]] || unset SRUN_CPUS_PER_TASK
    # A session's runs share what it has: without --overlap the second waits for the first to end.
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

# Whether the ranks have said how this attempt ended, which they do last of all.
has_ended() {
  tail -n 1 "${ATTEMPT%/attempts/*}/metrics.jsonl" 2>/dev/null |
    grep -qE '"attempt": '"$((10#${ATTEMPT##*/}))"', "event": "(done|paused|stopped)"'
}

# After their last word agents have a minute to leave. An srun whose slurmstepd was killed on a node
# never learns that its ranks have left, and would keep the job to the end of its time.
end_late_agents() {
  until has_ended; do sleep 5; done
  sleep 60
  echo "the ranks have ended a minute ago, srun has not: killing it"
  signal_agents KILL
}

# Wait for all of them, through any trap; the status of the first that failed.
wait_for_agents() {
  local agent status before watch='' result=0
  if [[ -n ${SLURM_JOB_ID-} ]]; then
    end_late_agents &
    watch=$!
  fi
  for agent in "${AGENTS[@]}"; do
    # A trap ends the wait, not the agent.
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
