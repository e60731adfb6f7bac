# shellcheck shell=bash
# Save before the time limit and requeue the job: for any batch script (docs/own-script.md).
#   #SBATCH --signal=B:USR1@180
#   #SBATCH --requeue
#   #SBATCH --open-mode=append
#   source DITBENCH/jobs/requeue.sh
#   run_and_requeue srun python train.py --resume      the last line of the script
# REQUEUE_SIGNAL   signal that the command gets near the time limit; default USR1
# REQUEUE_CODE     exit status with which the command asks to be requeued; default none
# MOST_REQUEUES    requeues of one job after which it ends; default 20
# jobs/body.sh uses the functions below.

# Traps increment this, to distinguish a wait that a signal interrupted from the end of a process.
SIGNALS=0

# Wait for a process, also across signals, and return its status.
wait_through_signals() {
  local before status
  # A trapped signal ends the wait, not the process.
  while true; do
    before=$SIGNALS status=0
    wait "$1" || status=$?
    ((SIGNALS == before)) && return "$status"
  done
}

# Print the id of this job, or of this task of an array. The last task of an array has the id of
# the array itself as SLURM_JOB_ID, which would requeue all tasks.
job_to_requeue() {
  local task=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
  echo "${task:-$SLURM_JOB_ID}"
}

# Print why Slurm ends this job: `cancelled` by a person, which a requeue would undo, at its time `limit`,
# `requeued` by Slurm itself, or `unknown`. TERM alone does not tell these apart.
why_ended() {
  local state restarts reason
  read -r state restarts reason < <(squeue -h -t all -j "$(job_to_requeue)" \
    -O State:20,RestartCnt:10,Reason:40 2>/dev/null) || { echo unknown && return; }
  if ((restarts != ${SLURM_RESTART_COUNT:-0})); then
    echo requeued
  elif [[ $reason == TimeLimit* ]]; then
    echo limit
  elif [[ $state == COMPLETING || $state == CANCELLED ]]; then
    echo cancelled
  else
    echo unknown
  fi
}

is_cancelled() {
  [[ $(why_ended) == cancelled ]]
}

# Requeue this job; return 1 if the site does not requeue.
requeue_job() {
  echo "requeueing job $(job_to_requeue)"
  # Slurm then sends TERM, and KILL after KillWait: hardly anything can run after this.
  trap '' TERM
  scontrol requeue "$(job_to_requeue)"
}

# Run a command and forward signals to it. Requeue the job if the time limit is near or if the command
# asks for it, however it ended; otherwise exit with the status of the command.
run_and_requeue() {
  local child='' status=0 is_warned=0 is_ending=0
  trap 'SIGNALS=$((SIGNALS + 1)) is_warned=1; kill -s "${REQUEUE_SIGNAL:-USR1}" "$child" || true' USR1
  trap 'SIGNALS=$((SIGNALS + 1)) is_ending=1; kill -s TERM "$child" || true' TERM
  "$@" &
  child=$!
  wait_through_signals "$child" || status=$?
  # TERM is a scancel, a preemption or the limit itself: Slurm decides what follows.
  if ((!is_ending)) && { ((is_warned)) || [[ $status == "${REQUEUE_CODE-}" ]]; } && ! is_cancelled; then
    if ((${SLURM_RESTART_COUNT:-0} >= ${MOST_REQUEUES:-20})); then
      echo "requeued ${SLURM_RESTART_COUNT:-0} times already: the job ends" >&2
      exit 1
    fi
    if requeue_job; then
      exit 0
    fi
    echo "this site does not requeue: submit the script again" >&2
    exit 1
  fi
  exit "$status"
}
