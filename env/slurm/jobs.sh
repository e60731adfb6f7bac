# Find and end the processes of the jobs of a cluster.
# Slurm's tracking by parent (linuxproc) misses a task that detached itself, and a killed slurmd leaves
# its steps behind. So processes are recognised by their initial environment: a step daemon has the
# mark of its slurmd; a task has the SLURM_CONF of this cluster, its node and one of its job ids.
# shellcheck shell=bash source-path=SCRIPTDIR source=daemons.sh
source "${BASH_SOURCE[0]%/*}/daemons.sh"

# job_pids NODE... prints the step daemons, batch shells and tasks of these nodes.
job_pids() {
  local first pid id patterns=() node
  for node; do
    patterns+=(-e "DITBENCH_DAEMON=$home/$node")
  done
  for pid in $(pids_with "${patterns[@]}"); do
    [[ $(daemon_pid "$(daemon_of "$pid")") == "$pid" ]] || echo "$pid"
  done
  # The shell of an salloc has SLURM_CONF and a job id but no node; a process started inside a job of
  # another cluster has the job id of that cluster.
  first=$(sed -n 's/^FirstJobId=//p' "$home/etc/slurm.conf" 2>/dev/null) || return 0
  for pid in $(pids_with -e "SLURM_CONF=$home/etc/slurm.conf"); do
    id=$(variable "$pid" SLURM_JOB_ID)
    [[ $id =~ ^[0-9]+$ && " $* " == *" $(variable "$pid" SLURMD_NODENAME) "* ]] || continue
    ((id < first || id >= first + 100000)) || echo "$pid"
  done
}

pids_with() { # pids_with -e TEXT... prints the processes with one of these lines in their environment
  grep -lzxF "$@" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3 || true
}

variable() { # variable PID NAME
  { tr '\0' '\n' <"/proc/$1/environ" | sed -n "s/^$2=//p"; } 2>/dev/null || true
}

daemon_of() {
  local mark
  mark=$(variable "$1" DITBENCH_DAEMON)
  echo "${mark##*/}"
}

# end_jobs cancels all jobs, and kills processes that still run two or three seconds later.
end_jobs() {
  local ids=() until
  if daemon_pid slurmctld >/dev/null; then
    mapfile -t ids < <(timeout 5 squeue --noheader --format=%A 2>/dev/null | sort -u)
    ((${#ids[@]} == 0)) || timeout 5 scancel --quiet "${ids[@]}" 2>/dev/null || true
  fi
  until=$((SECONDS + 2))
  while ((SECONDS <= until)) && [[ -n $(job_pids "${nodes[@]}") ]]; do
    sleep 0.1
  done
  kill_jobs "${nodes[@]}"
}

kill_jobs() { # kill_jobs NODE... kills the processes of these nodes at once
  local pids=()
  mapfile -t pids < <(job_pids "$@")
  ((${#pids[@]} == 0)) || kill -KILL "${pids[@]}" 2>/dev/null || true
}
