# shellcheck shell=bash
# Choose the nodes on which a requeued job may start again.

# Print NODE|STATE|CPUS|MEMORY|FEATURES|GRES for the nodes of the job's partition, or for `-n NODE`.
# The sockets of the GPUs are removed: they differ between otherwise equal nodes.
describe_nodes() {
  sinfo -h -N -p "$SLURM_JOB_PARTITION" -o '%N|%t|%c|%m|%f|%G' "$@" | sed 's/([^)]*)//g'
}

# nodes_like NODE: print the available nodes with the same resources as NODE. NODE satisfied the
# request of the job (features, GPU type, memory), so each of these does too.
nodes_like() {
  local like
  like=$(describe_nodes -n "$1" | head -n 1 | cut -d '|' -f 3-)
  describe_nodes | awk -F '|' -v like="$like" '
    $2 ~ /^(idle|mix|alloc|comp|plnd)[~#%]?$/ && $3 "|" $4 "|" $5 "|" $6 == like { print $1 }' | sort -u
}

# stay_off NODE JOB: exclude NODE from a job that was just requeued. If too few nodes remain, do
# nothing: Slurm would leave the job pending forever.
stay_off() {
  local node=$1 job=$2 excluded left
  excluded=$(scontrol show job -o "$job" | sed -n 's/.* ExcNodeList=\([^ ]*\).*/\1/p' | head -n 1)
  [[ $excluded != "(null)" ]] || excluded=
  left=$(nodes_like "$node" | grep -cvxF -f <(
    echo "$node"
    [[ -z $excluded ]] || scontrol show hostnames "$excluded"
  )) || true
  if ((left < SLURM_NNODES)); then
    echo "$node is faulty, but only $left nodes like it remain for a job of $SLURM_NNODES: not excluded"
  elif scontrol update jobid="$job" ExcNodeList="${excluded:+$excluded,}$node"; then
    echo "$node is faulty: excluded from job $job"
  fi
}
