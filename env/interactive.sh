#!/usr/bin/env bash
# Open a shell with GPUs: a Slurm session (salloc) in the activated environment.
#   env/interactive.sh GPU GPUS_PER_NODE [-- SALLOC_FLAGS]
#   env/interactive.sh a100 2 -- --nodes=2 --time=04:00:00
# In it `bash jobs/pretrain.sbatch CONFIG` uses the whole allocation; several may run at once. The
# defaults are 1 node and 2 hours.
[ -n "${BASH_VERSION-}" ] || { echo "run it with bash: bash $0 ..." >&2; exit 2; }
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if (($# < 2)) || [[ ! $2 =~ ^[0-9]+$ ]] || [[ ${3---} != -- ]]; then
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
gpu=$1 gpus=$2
shift $(($# > 2 ? 3 : 2))

# The flags of a site may depend on the number of nodes.
nodes=1
for flag; do
  case $flag in
    --nodes=*) nodes=${flag#--nodes=} ;;
    -N[0-9]*) nodes=${flag#-N} ;;
    -N | --nodes)
      echo "write --nodes=N as one word" >&2
      exit 2
      ;;
  esac
done

# Activate here too: for a shell that reads commands from a pipe, and to fail before the queue.
# shellcheck source=env/activate.sh
source "$root/env/activate.sh"
flags=$(job_flags "$gpu" "$nodes" "$gpus")
mapfile -t flags <<<"$flags"
flags+=("--cpus-per-task=$((8 * (gpus > 0 ? gpus : 1)))" --time=02:00:00 --job-name=interactive)

status=0
salloc "${flags[@]}" "$@" bash --rcfile "$root/env/shell.sh" || status=$?
# The status of the shell, or a refusal; Slurm does not say what would be accepted.
if ((status)) && ! sbatch --test-only "${flags[@]}" --wrap=true &>/dev/null; then
  echo "this cluster has (nodes, GPUs):" >&2
  sinfo -h -o '%D %G' | sed 's/([^)]*)//g' | sort -u >&2
fi
exit "$status"
