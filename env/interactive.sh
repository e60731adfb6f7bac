#!/usr/bin/env bash
# A shell with GPUs: a Slurm session (salloc) in the activated environment.
#   env/interactive.sh GPU GPUS_PER_NODE [-- SALLOC_FLAGS]
#   env/interactive.sh a100 2 -- --nodes=2 --time=04:00:00
# There `bash jobs/pretrain.sbatch CONFIG` runs over the allocation, as often as wanted, several at
# once too. It is for 1 node and 2 hours where the flags say nothing else.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if (($# < 2)) || [[ ! $2 =~ ^[0-9]+$ ]] || [[ ${3---} != -- ]]; then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
gpu=$1 gpus=$2
shift $(($# > 2 ? 3 : 2))

# The site may need the number of nodes to spell its flags.
nodes=1
for flag; do
  case $flag in
    --nodes=*) nodes=${flag#--nodes=} ;;
    -N[0-9]*) nodes=${flag#-N} ;;
    -N | --nodes)
      echo "write --nodes=N in one word" >&2
      exit 2
      ;;
  esac
done

# Here already, for a shell that reads its commands from a pipe, and to fail before the queue.
# shellcheck source=env/activate.sh
source "$root/env/activate.sh"
flags=$(job_flags "$gpu" "$nodes" "$gpus")
mapfile -t flags <<<"$flags"
flags+=("--cpus-per-task=$((8 * (gpus > 0 ? gpus : 1)))" --time=02:00:00 --job-name=interactive)

exec salloc "${flags[@]}" "$@" bash --rcfile "$root/env/shell.sh"
