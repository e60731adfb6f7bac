#!/usr/bin/env bash
# Job of `launch doctor`: write facts about the node to node.facts, then wait for signals.
#SBATCH --job-name=doctor-node
#SBATCH --time=2
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --output=node.out
set -u

say() { echo "$1 ${*:2}" >>node.facts; }
export -f say
say umask "$(umask)"
say host "$(hostname -f 2>/dev/null || hostname)"
for command in scontrol squeue sacct srun; do
  "$command" --version >/dev/null 2>&1 && say command "$command"
done
[[ -n $(scontrol show node -o "${SLURMD_NODENAME:-$(hostname)}" 2>/dev/null) ]] && say asks scontrol
# The doctor wrote this file: it fails with what jobs on this node's GPUs lack.
bash check 2>&1 | tail -n 1 | sed 's/^[[:alnum:].]*Error: //' >node.lacks
say cpus-of-job "$SLURM_CPUS_ON_NODE"
# shellcheck disable=SC2016  # the step's shell expands it
say cpus-of-step "$(srun --exact --ntasks=1 bash -c 'echo "$SLURM_CPUS_ON_NODE"')"
trap 'say heard-batch USR1' USR1
trap 'say heard-batch USR2' USR2
# shellcheck disable=SC2016  # the step's shell expands it
srun --overlap --ntasks=1 bash -c '
  for name in USR1 USR2; do trap "say heard-step $name" "$name"; done
  say ready step
  while [[ ! -e enough ]]; do sleep 0.2 & wait $!; done' &
say ready batch
while [[ ! -e enough ]]; do
  sleep 0.2 &
  wait $!
done
wait
