# Start, watch and stop processes by a recorded pid.
# A record holds the pid and the start time of the process, so that a reused pid is not mistaken for it.
# shellcheck shell=bash source-path=SCRIPTDIR source=place.sh
source "${BASH_SOURCE[0]%/*}/place.sh"

# born PID prints the start of the process in clock ticks; fails if it is gone or a zombie.
born() {
  local stat fields
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
  read -ra fields <<<"${stat##*) }"
  [[ ${fields[0]} != Z ]] && echo "${fields[19]}"
}

# daemon_pid NAME prints the pid of a running daemon; fails if it is not running.
daemon_pid() {
  local pid birth
  [[ -f $home/pids/$1 ]] && read -r pid birth <"$home/pids/$1" || return 1
  [[ $(born "$pid") == "$birth" ]] && echo "$pid"
}

# start_daemon NAME COMMAND... starts a daemon with its output in log/NAME.out.
# Without --default-signal the daemon, and every job below it, would ignore SIGINT like any background
# process of a shell, and no batch script could trap it. The environment is empty, so that a job gets
# only its submitter's.
start_daemon() {
  local name=$1 pid
  shift
  setsid env -i --default-signal PATH="$PATH" HOME="${HOME:-/}" SLURM_CONF="$home/etc/slurm.conf" \
    MYSQL_UNIX_PORT="$home/run/mysql.sock" DITBENCH_DAEMON="$home/$name" "$@" \
    </dev/null >>"$home/log/$name.out" 2>&1 9>&- &
  pid=$!
  disown "$pid"
  echo "$pid $(born "$pid" || echo 0)" >"$home/pids/$name"
}

start_node() { # start_node NODE
  start_daemon "$1" slurmd -D -N "$1" -f "$home/etc/slurm.conf" -d "$(command -v slurmstepd)"
}

# wait_for NAME SECONDS COMMAND... polls until COMMAND succeeds; fails if the daemon dies.
wait_for() {
  local name=$1 until=$((SECONDS + $2)) answer
  shift 2
  until answer=$("$@" 2>&1); do
    if ! daemon_pid "$name" >/dev/null; then
      say "$name died; the end of its log:"
    elif ((SECONDS > until)); then
      say "$name runs, but '$*' still fails: $answer"
      say "the end of its log:"
    else
      sleep 0.05
      continue
    fi
    tail -n 15 "$home/log/$name.out" >&2
    return 1
  done
}

# stop_daemons SECONDS NAME... sends TERM to all daemons, then KILL to those left after SECONDS.
stop_daemons() {
  local until=$((SECONDS + $1)) name pid left
  shift
  for name; do
    ! pid=$(daemon_pid "$name") || kill -TERM "$pid" 2>/dev/null || true
  done
  while :; do
    left=()
    for name; do
      ! pid=$(daemon_pid "$name") || left+=("$pid")
    done
    ((${#left[@]} > 0)) || return 0
    if ((SECONDS > until)); then
      kill -KILL "${left[@]}" 2>/dev/null || true
    fi
    sleep 0.05
  done
}
