#!/usr/bin/env bash
# Job of `launch doctor`: write facts about the node to `facts`, then requeue itself once.
#SBATCH --job-name=doctor
#SBATCH --time=2
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=output
set -u

((${SLURM_RESTART_COUNT:-0})) && exit
say() { echo "$1 ${*:2}" >>facts; }
say host "$(hostname -f 2>/dev/null || hostname)"
for command in scontrol squeue sacct srun; do
  "$command" --version >/dev/null 2>&1 && say command "$command"
done
[[ -n $(scontrol show node -o "${SLURMD_NODENAME:-$(hostname)}" 2>/dev/null) ]] && say asks scontrol
# The doctor wrote this file: it fails with what jobs on this node's GPUs lack.
say lacks "$(bash check 2>&1 | tail -n 1 | sed 's/^[[:alnum:].]*Error: //')"
say cpus-of-job "$SLURM_CPUS_ON_NODE"
# shellcheck disable=SC2016  # the step's shell expands it
say cpus-of-step "$(srun --exact --ntasks=1 bash -c 'echo "$SLURM_CPUS_ON_NODE"')"
say asked requeue
error=$(scontrol requeue "$SLURM_JOB_ID" 2>&1) || say refused "$error"
