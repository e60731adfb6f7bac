# shellcheck shell=bash
# Activate the environment of the site: modules, Python, and the variables that commands read.
#   source env/activate.sh

_activate() {
  local root name before=''
  # A batch script of the user's gets its own environment back (launch/script/environment.py).
  [[ -n ${ACTIVATED-} ]] || before=$(env -0 | gzip -9 | base64 -w 0)
  root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) || return
  # shellcheck source=env/site.sh
  source "$root/env/site.sh" || return
  read_site "$root/env/sites" || return
  load_modules || return
  enter_environment "${VENV:-$root/.venv}" || return
  export PYTHONPATH=$root
  export LOGS=${LOGS:-$root/logs} UMASK=${UMASK:-077} TRUSTED=${TRUSTED-}
  # One thread per core for commands run by hand; jobs/agent.sh divides the cores among the ranks.
  OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(nproc)}
  export OMP_NUM_THREADS
  if [[ -n ${AI_TOOLKIT-} ]]; then
    export AI_TOOLKIT
  fi
  if [[ -n ${NETWORK_INTERFACE-} ]]; then
    export NCCL_SOCKET_IFNAME=$NETWORK_INTERFACE GLOO_SOCKET_IFNAME=$NETWORK_INTERFACE
  fi
  # For the next read_site, which must know what the user has set.
  export ACTIVATED=$root
  for name in "${OWN[@]}"; do
    export "ACTIVATED_$name=${!name-}"
  done
  if [[ -n $before ]]; then
    ACTIVATED_AFTER=$(env -0 | gzip -9 | base64 -w 0)
    export ACTIVATED_AFTER ACTIVATED_BEFORE=$before
  fi
}

_activate
