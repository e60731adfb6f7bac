# The folder of one cluster and its layout. Sourced by up, down and node.
# shellcheck shell=bash

# Debian installs the daemons in sbin, which is not on the PATH of ordinary users.
export PATH="$PATH:/usr/sbin:/sbin"
# shellcheck disable=SC2034  # read by the scripts that source this
nodes=(a40-1 a40-2 a100-1 a100-2)

say() { echo "env/slurm: $*" >&2; }

default_dir() {
  local base=${XDG_RUNTIME_DIR:-}
  [[ -n $base && -w $base ]] || base=/tmp
  echo "$base/ditbench-slurm-$(id -un)"
}

# find_place DIR sets dir, the folder, and home, the path of it that the daemons use. slurm.conf allows
# no spaces, commas or % in a path, and the path of a Unix socket has at most 107 characters, of which
# the socket of a step under spool/ needs 45. If DIR does not fit, home is a short link to it.
find_place() {
  dir=$(realpath -m -- "${1:-$(default_dir)}")
  home=$dir
  [[ -e $dir/home ]] || return 0
  home=$(<"$dir/home")
  DITBENCH_SLURM=$(<"$dir/version")
}

fits_slurm() { [[ $1 =~ ^[A-Za-z0-9._/+-]+$ ]] && ((${#1} <= 60)); }

# make_place creates the folder, private unless it exists already, and the link if one is needed.
make_place() {
  if [[ ! -e $dir/home && -n $(ls -A -- "$dir") ]]; then
    say "$dir is not empty, and down would empty it: choose another folder"
    return 1
  fi
  if ! fits_slurm "$dir"; then
    home=$(mktemp -d /tmp/slurm-XXXXXX)/s
    chmod 755 "${home%/s}"
    ln -s -- "$dir" "$home"
  fi
  printf '%s\n' "${DITBENCH_SLURM-}" >"$dir/version"
  printf '%s\n' "$home" >"$dir/home"
  mkdir -p -- "$dir"/{etc,run,log,state,spool,pids}
  mkdir -m 700 -- "$dir/db"
}

# lock_place makes a second up, down or node on the same folder wait. Daemons close descriptor 9.
lock_place() {
  [[ -O $dir ]] || { say "$dir belongs to another user" && return 1; }
  exec 9<"$dir"
  flock --wait 120 9 || { say "another up or down is running in $dir" && return 1; }
}

# remove_place removes everything that make_place created; other files stay.
remove_place() {
  rm -rf -- "${dir:?}"/{etc,run,log,state,spool,pids,db,version,home}
  if [[ $home != "$dir" && $home == /tmp/slurm-*/s && -L $home ]]; then
    rm -f -- "$home" && rmdir -- "${home%/s}"
  fi
  rmdir -- "$dir" 2>/dev/null || true
}

# versions_dir prints the folder of the versions that `unpack` has unpacked; other users can use root's.
versions_dir() {
  local base=/var/cache
  ((EUID == 0)) || base=${XDG_CACHE_HOME:-$HOME/.cache}
  echo "${DITBENCH_SLURM_VERSIONS:-$base/ditbench-slurm}"
}

# choose_version puts the programs of the version $DITBENCH_SLURM first on the PATH; without it the
# installed ones serve. Sets programs and plugins, the folders of its programs and libraries; empty if installed.
choose_version() {
  programs="" plugins=""
  [[ -n ${DITBENCH_SLURM-} ]] || return 0
  programs=$(versions_dir)/$DITBENCH_SLURM/bin
  # shellcheck disable=SC2034
  plugins=$(versions_dir)/$DITBENCH_SLURM/root/usr/lib/x86_64-linux-gnu/slurm-wlm
  [[ -d $programs ]] || { say "run env/slurm/unpack $DITBENCH_SLURM first" && return 1; }
  export PATH="$programs:$PATH"
}
