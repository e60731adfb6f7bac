# shellcheck shell=bash
# Which nodes a requeued job starts on again.

# NODE|STATE|CPUS|MEMORY|FEATURES|GRES of the nodes of the job's partition; `-n NODE` of that one.
# On which sockets the GPUs sit differs between equal nodes.
describe_nodes() {
  sinfo -h -N -p "$SLURM_JOB_PARTITION" -o '%N|%t|%c|%m|%f|%G' "$@" | sed 's/([^)]*)//g'
}

# nodes_like NODE: the nodes that take jobs and have what NODE has. Whatever the job asked for
# (features, a type of GPU, memory), NODE had it, so any of these does.
nodes_like() {
  local like
  like=$(describe_nodes -n "$1" | head -n 1 | cut -d '|' -f 3-)
  describe_nodes | awk -F '|' -v like="$like" '
    $2 ~ /^(idle|mix|alloc|comp|plnd)[~#%]?$/ && $3 "|" $4 "|" $5 "|" $6 == like { print $1 }' | sort -u
}

# stay_off NODE JOB: keep a job that was just requeued off NODE, unless too few nodes are left then:
# Slurm would leave it pending for ever.
stay_off() {
  local node=$1 job=$2 excluded left
  excluded=$(scontrol show job -o "$job" | sed -n 's/.* ExcNodeList=\([^ ]*\).*/\1/p' | head -n 1)
  [[ $excluded != "(null)" ]] || excluded=
  left=$(nodes_like "$node" | grep -cvxF -f <(
    echo "$node"
    [[ -z $excluded ]] || scontrol show hostnames "$excluded"
  )) || true
  if ((left < SLURM_NNODES)); then
    echo "$node is at fault, and without it $left nodes like it are left for $SLURM_NNODES: not excluded"
  elif scontrol update jobid="$job" ExcNodeList="${excluded:+$excluded,}$node"; then
    echo "$node is at fault: job $job stays off it"
  fi
}
