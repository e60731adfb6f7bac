#!/usr/bin/env bash
# Job of `launch doctor` that runs into its time limit: write to limit.facts which signals arrive
# when, in the batch shell and in the step.
#SBATCH --job-name=doctor-limit
#SBATCH --time=2
#SBATCH --signal=B:USR1@40
#SBATCH --ntasks=1
#SBATCH --output=limit.out
set -u

say() { echo "$1 $(date +%s.%N)" >>limit.facts; }
# Traps run within 0.2 s of a signal; the last beat shows when the process was killed.
beat() {
  while true; do
    date +%s.%N >"$1.beat.new" && mv "$1.beat.new" "$1.beat"
    sleep 0.2 &
    wait $!
  done
}
export -f say beat
trap 'say batch-USR1' USR1
trap 'say batch-TERM' TERM
say start
# shellcheck disable=SC2016  # the step's shell expands it
srun --ntasks=1 bash -c 'trap "say step-USR1" USR1; trap "say step-TERM" TERM; beat step' &
beat batch
