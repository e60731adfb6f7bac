# shellcheck shell=bash
# Functions that read the site file into this shell.
#   SITE=name   selects env/sites/name.sh; default: the first file with a matching `# host:` line, else local
# A site file may set MODULES, LOGS, UMASK, TRUSTED, VENV, CONTAINER, AI_TOOLKIT, TORCH, TORCH_INDEX,
# NETWORK_INTERFACE, JOB_FLAGS and the function site_flags (env/sites/example.sh explains each).

find_site() {
  local sites=$1 host short file pattern
  short=$(hostname) host=$(hostname -f 2>/dev/null || hostname)
  for file in "$sites"/*.sh; do
    while read -r pattern; do
      # Unquoted, so that it is matched as a pattern: *.example.edu
      # shellcheck disable=SC2053
      if [[ $host == $pattern || $short == $pattern ]]; then
        basename "$file" .sh
        return
      fi
    done < <(sed -n 's/^# host: *//p' "$file")
  done
  echo local
}

read_site() {
  local sites=$1 name copy
  # Unset what an earlier activate.sh exported and nobody changed since: it is no wish of the user, and
  # another site file may match by now. A job keeps it all, as the name of its node may match none.
  OWN=()
  for name in SITE LOGS UMASK TRUSTED VENV CONTAINER AI_TOOLKIT; do
    copy=ACTIVATED_$name
    if [[ -n ${ACTIVATED-} && -z ${SLURM_JOB_ID-} && ${!name-} == "${!copy-}" ]]; then
      unset "$name"
    fi
    unset "$copy"
    [[ -n ${!name-} ]] || OWN+=("$name")
  done
  SITE=${SITE:-$(find_site "$sites")}
  # A name, not a path: the file is executed.
  if [[ ! $SITE =~ ^[[:alnum:]][[:alnum:]._-]*$ || ! -f $sites/$SITE.sh ]]; then
    echo "SITE=$SITE: no such file $sites/$SITE.sh; copy env/sites/example.sh to it, or unset SITE" >&2
    return 2
  fi
  MODULES=() JOB_FLAGS=()
  # shellcheck source=env/sites/local.sh
  source "$sites/$SITE.sh"
  export SITE
  for name in LOGS VENV CONTAINER AI_TOOLKIT; do
    if [[ ${!name-} == "~"* ]]; then
      echo "$name=${!name}: the shell did not expand ~; write the whole path" >&2
      return 2
    fi
  done
  if [[ -n ${CONTAINER-} && ! -e $CONTAINER ]]; then
    echo "CONTAINER=$CONTAINER: no such image; build it, or change env/sites/$SITE.sh" >&2
    return 2
  fi
  if [[ ! ${UMASK:-077} =~ ^0*[2367][2367]$ ]]; then
    echo "UMASK=$UMASK: not an octal mask that lets only the owner write, such as 027" >&2
    return 2
  fi
}

# Print the flags of every job of this site, then those that request its GPUs, one per line.
job_flags() { # job_flags GPU NODES GPUS_PER_NODE
  if ((${#JOB_FLAGS[@]})); then
    printf '%s\n' "${JOB_FLAGS[@]}"
  fi
  if (($3)); then
    site_flags "$@"
  else
    printf '%s\n' "--nodes=$2" --ntasks-per-node=1
  fi
}

# Activate a virtualenv (of env/create.sh, venv or uv) or the folder of a conda environment, which needs no
# conda command.
enter_environment() { # enter_environment FOLDER
  local script options=$-
  if [[ ! -x $1/bin/python ]]; then
    echo "no virtualenv in $1; create it with env/create.sh" >&2
    return 2
  fi
  # These scripts read unset variables.
  set +u
  if [[ -d $1/conda-meta ]]; then
    export PATH=$1/bin:$PATH CONDA_PREFIX=$1 CONDA_DEFAULT_ENV=$1
    for script in "$1"/etc/conda/activate.d/*.sh; do
      # shellcheck disable=SC1090
      [[ ! -e $script ]] || source "$script" || return
    done
  else
    # shellcheck disable=SC1091
    source "$1/bin/activate" || return
  fi
  [[ $options != *u* ]] || set -u
}

load_modules() {
  local options=$-
  ((${#MODULES[@]} == 0)) && return
  if ! type module >/dev/null 2>&1; then
    echo "site $SITE needs modules (${MODULES[*]}), but this shell has no 'module' command;" \
      "start it as a login shell (bash -l)" >&2
    return 2
  fi
  # Module systems read unset variables.
  set +u
  if ! module load "${MODULES[@]}"; then
    echo "site $SITE: cannot load its modules (${MODULES[*]}); \`module avail\` lists what there is," \
      "MODULES in env/sites/$SITE.sh what is loaded" >&2
    return 2
  fi
  [[ $options != *u* ]] || set -u
}
