# shellcheck shell=bash
# The body of every job. jobs/*.sbatch source it with ROOT, KIND and ENGINE set and their arguments.
# It is the same under sbatch, inside salloc, and without Slurm (LOCAL_NODES torchrun agents, default 1).

BEGAN=$(date +%s.%N)

# 1. The environment: site, modules, virtualenv.
# shellcheck source=env/activate.sh
source "$ROOT/env/activate.sh"
umask "$UMASK"
# Do not import a folder named train/ from the current directory, nor what lies in ~/.local.
export PYTHONSAFEPATH=1 PYTHONNOUSERSITE=1
# shellcheck source=jobs/requeue.sh
source "$ROOT/jobs/requeue.sh"
# shellcheck source=jobs/agents.sh
source "$ROOT/jobs/agents.sh"
# shellcheck source=jobs/nodes.sh
source "$ROOT/jobs/nodes.sh"

# 2. Create or find the run folder, and claim an attempt.
if (($# == 0)); then
  echo "usage: jobs/$KIND.sbatch CONFIG.yaml|RUN [key=value ...]" >&2
  exit 2
fi
if [[ -n ${CONTAINER-} && -z ${SLURM_JOB_ID-} ]] && (($(count_nodes) > 1)); then
  echo "CONTAINER: without Slurm only one node can run in it; unset LOCAL_NODES" >&2
  exit 2
fi
opened=$(python -m runs open --kind "$KIND" --began "$BEGAN" \
  --nodes "$(count_nodes)" --gpus "$(count_gpus)" -- "$@")
[[ -n $opened ]] || exit 0
RANKS_PER_NODE=${opened%%$'\n'*} ATTEMPT=${opened#*$'\n'}
RUN=${ATTEMPT%/attempts/*}

# 3. Signals. A file also records each request, for ranks that have no signal handler yet.
interrupted=0
on_pause() {
  SIGNALS=$((SIGNALS + 1))
  touch "$ATTEMPT/PAUSE"
  signal_agents USR1
}
on_stop() {
  SIGNALS=$((SIGNALS + 1))
  touch "$ATTEMPT/STOP"
}
on_interrupt() {
  SIGNALS=$((SIGNALS + 1))
  interrupted=$((interrupted + 1))
  if ((interrupted == 1)); then
    echo "saving, then stopping; press Ctrl-C again to leave without a save" >&2
    touch "$ATTEMPT/STOP"
  elif ((interrupted == 2)); then
    echo "leaving without a save; press Ctrl-C again to kill the ranks" >&2
    signal_agents QUIT
  else
    echo "killing the ranks" >&2
    kill_agents
  fi
}
on_hangup() {
  # To write to the closed terminal would end this script.
  exec >>"$ATTEMPT/output.log" 2>&1
  on_stop
}
trap on_pause USR1
trap on_hangup HUP
trap on_stop TERM
trap on_interrupt INT

# 4. Start one torchrun agent per node, in the background so that traps run at once.
start_agents
status=0
wait_for_agents || status=$?

# 5. Record how the attempt ended, end what its study has settled, and requeue the job if another attempt
# is worthwhile.
code=0
verdict=$(trap '' INT HUP && python -m runs close "$ATTEMPT" --status "$status") || code=$?
read -r event next faulty_node <<<"$verdict"
[[ -z $event ]] || echo "$event: $RUN"
STUDY=${RUN%/cells/*}
if [[ $next == settle && $STUDY != "$RUN" ]] && grep -qsx 'stop: decided' "$STUDY/study.yaml"; then
  # Exit code 1 says that something is undecided.
  (trap '' INT HUP && python -m analysis cells --decided "$STUDY" --skip) || true
fi
if ((interrupted)); then
  exit 130
fi
if [[ ${ENVIRONMENT-} == BATCH && $next == requeue ]]; then
  if requeue_job; then
    [[ -z $faulty_node ]] || stay_off "$faulty_node" "$(job_to_requeue)"
    exit "$code"
  fi
  echo "this site does not requeue; to continue: sbatch [the same flags] $0 $RUN" >&2
  exit 1
fi
exit "$code"
