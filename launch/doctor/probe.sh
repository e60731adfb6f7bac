#!/usr/bin/env bash
# Job of `launch doctor`: write facts about the node to `facts`, then requeue itself once.
#SBATCH --job-name=doctor
#SBATCH --time=2
#SBATCH --ntasks=1
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=output
set -u

((${SLURM_RESTART_COUNT:-0})) && exit
say() { echo "$1 ${*:2}" >>facts; }
say host "$(hostname -f 2>/dev/null || hostname)"
# The doctor wrote this file: it fails with what jobs on this node's GPUs lack.
say lacks "$(bash check 2>&1 | tail -n 1 | sed 's/^[[:alnum:].]*Error: //')"
say asked requeue
error=$(scontrol requeue "$SLURM_JOB_ID" 2>&1) || say refused "$error"
