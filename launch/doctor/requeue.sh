#!/usr/bin/env bash
# Job of `launch doctor` that requeues itself once and writes to requeue.facts.
#SBATCH --job-name=doctor-requeue
#SBATCH --time=2
#SBATCH --ntasks=1
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=requeue.out
set -u

echo "start ${SLURM_RESTART_COUNT:-0} $(date +%s)" >>requeue.facts
((${SLURM_RESTART_COUNT:-0})) && exit
echo "asked 0 $(date +%s)" >>requeue.facts
scontrol requeue "$SLURM_JOB_ID" 2>requeue.error || echo refused >>requeue.facts
