# shellcheck shell=bash
# Start, signal and wait for the torchrun agents of a job: by srun, or on this machine without Slurm.

AGENTS=()

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

# Record what the GPUs of this node do, until this process ends; a program that it executes goes on as
# this process.
start_gpu_sampler() { # start_gpu_sampler RANKS
  local parent=$BASHPID
  (($(count_gpus))) || return 0
  python -m runs.attempt.gpu_sampler "$ATTEMPT" "$1" "$parent" &
}

# Print `NODE ADDRESS` for each node of the job: a container has no scontrol.
list_addresses() {
  scontrol show node -o "$SLURM_JOB_NODELIST" |
    sed -n 's/^NodeName=\([^ ]*\).* NodeAddr=\([^ ]*\).*/\1 \2/p' | grep . && return
  echo "scontrol gives no addresses of the nodes '$SLURM_JOB_NODELIST'" >&2
  return 1
}

# Print the address of this node, as the other nodes reach it, or another node's.
own_address() {
  sed -n "s/^$SLURMD_NODENAME //p" <<<"$NODE_ADDRESSES" | grep .
}
another_address() {
  sed "/^$SLURMD_NODENAME /d; s/^[^ ]* //; q" <<<"$NODE_ADDRESSES" | grep .
}

# Set INSIDE to the words that run a command in the container of the site: none, if it names no image.
set_inside() {
  local run=${ATTEMPT%/attempts/*} cache=${XDG_CACHE_HOME:-$HOME/.cache} path
  INSIDE=()
  [[ -n ${CONTAINER-} ]] || return 0
  INSIDE=(apptainer exec --nv)
  while IFS= read -r -d '' path; do
    # --mount takes CSV: quotes are doubled.
    path=${path//\"/\"\"}
    INSIDE+=(--mount "type=bind,\"source=$path\",\"destination=$path\"")
  done < <(
    trap '' INT HUP
    mkdir -p "$cache"
    printf '%s\0' "$ROOT" "$LOGS" "$run" "$cache"
    python -m runs show "$run" --paths
  )
  INSIDE+=("$CONTAINER")
}

# Open a file without a name for the stores of agents and ranks that share a machine, and set
# AGENT_STORE to its path: no other user can open it, and nothing of it remains.
open_store() {
  local file store
  # A Ctrl-C must not end these commands, and with them the script.
  file=$(trap '' INT HUP && mktemp -p /dev/shm)
  exec {store}<>"$file"
  (trap '' INT HUP && rm "$file")
  export AGENT_STORE=/proc/$$/fd/$store
}

start_agents() {
  local nodes i output=$ATTEMPT/output.log agent
  nodes=$(count_nodes)
  unset AGENT_STORE
  export ATTEMPT ENGINE ROOT AGENT_NODES=$nodes RANKS_PER_NODE NODE_ADDRESSES=''
  set_inside
  agent=("${INSIDE[@]}" bash "$ROOT/jobs/agent.sh")
  ((${interrupted:-0} < 2)) || return 0
  : >>"$output"
  if [[ -n ${SLURM_JOB_ID-} ]]; then
    ((nodes == 1)) || NODE_ADDRESSES=$(trap '' INT HUP && list_addresses)
    export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK-}
    [[ -n $SRUN_CPUS_PER_TASK ]] || unset SRUN_CPUS_PER_TASK
    local leash=()
    # In an salloc srun would outlive this script.
    [[ ${ENVIRONMENT-} == BATCH ]] || leash=(python -m runs.attempt.parent TERM $$)
    # The runs of an salloc session share its resources: without --overlap a second run would wait.
    "${leash[@]}" srun --overlap --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 \
      --kill-on-bad-exit=1 --wait=60 "${agent[@]}" >>"$output" 2>&1 &
    AGENTS=("$!")
  else
    # Agents open files of this process to meet, and end with it, except in a container, whose first process
    # belongs to another user namespace: there a single agent opens its own, and outlives a kill of this script.
    ((nodes == 1)) || open_store
    for ((i = 0; i < nodes; i++)); do
      # It ignores these signals, also before it can say so itself.
      (trap '' USR1 TERM HUP && exec python -m runs.attempt.parent KILL $$ "${agent[@]}") \
        >>"$output" 2>&1 &
      AGENTS+=("$!")
    done
  fi
  # One that came before the agents could be signalled.
  ((${interrupted:-0} < 2)) || kill_agents
  follow_output
}

follow_output() {
  local output=$ATTEMPT/output.log columns='' at_once=()
  [[ ! -t 1 ]] || columns=$(tput cols 2>/dev/null || echo 80)
  local follow=(tail -n +1 --follow --sleep-interval=0.5 --pid="${AGENTS[0]}" "$output")
  if [[ ${ENVIRONMENT-} == BATCH ]]; then
    # For `tail -f logs/NAME-JOB.out`.
    echo "output: $output"
    "${follow[@]}" | grep -a --line-buffered -E '^(starting|step) ' &
  elif [[ -n $columns || -n ${THIN-} ]]; then
    # mawk waits for 4 kB of input unless it is told not to.
    [[ $(readlink -f "$(command -v awk)") != *mawk ]] || at_once=(-W interactive)
    "${follow[@]}" | awk "${at_once[@]}" -v live="$columns" -v every="${THIN:-1}" -f "$ROOT/jobs/live.awk" &
  else
    "${follow[@]}" &
  fi
  FOLLOWER=$!
}

signal_agents() {
  local agent
  for agent in "${AGENTS[@]}"; do
    kill -s "$1" "$agent" 2>/dev/null || true
  done
}

# Kill the agents, and with them their ranks. srun kills its step at QUIT; torchrun hears no signal before
# it has imported torch.
kill_agents() {
  local signal=KILL
  [[ -z ${SLURM_JOB_ID-} ]] || signal=QUIT
  signal_agents "$signal"
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
    if ((quiet_s == 60)) && python -m runs ended "$ATTEMPT"; then
      break
    fi
  done
  echo "the ranks ended a minute ago, srun has not: killing it"
  signal_agents KILL
}

# Wait for all agents, also across signals; return the status of the first that failed.
wait_for_agents() {
  local agent status watch='' result=0
  if [[ -n ${SLURM_JOB_ID-} ]]; then
    end_late_agents &
    watch=$!
  fi
  for agent in "${AGENTS[@]}"; do
    status=0
    wait_through_signals "$agent" || status=$?
    ((result)) || result=$status
  done
  [[ -z $watch ]] || kill "$watch" 2>/dev/null || true
  [[ -z ${FOLLOWER-} ]] || wait "$FOLLOWER" 2>/dev/null || true
  return "$result"
}
