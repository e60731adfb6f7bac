# The folder of one cluster, and what stands where in it. Sourced by up, down and node.
# shellcheck shell=bash

# Debian keeps the daemons in sbin, which an ordinary user's PATH lacks.
export PATH="$PATH:/usr/sbin:/sbin"
# shellcheck disable=SC2034  # read by those who source this
nodes=(a40-1 a40-2 a100-1 a100-2)

say() { echo "env/slurm: $*" >&2; }

default_dir() {
  local base=${XDG_RUNTIME_DIR:-}
  [[ -n $base && -w $base ]] || base=/tmp
  echo "$base/ditbench-slurm-$(id -un)"
}

# find_place DIR sets dir, the folder itself, and home, the path by which the daemons know it.
# slurm.conf takes no spaces, commas or % in a path, and a Unix socket path ends at 107 characters, of
# which a step's socket under spool/ needs 45. Where DIR does not fit, home is a short link to it.
find_place() {
  dir=$(realpath -m -- "${1:-$(default_dir)}")
  home=$dir
  # shellcheck disable=SC2034
  [[ ! -e $dir/home ]] || home=$(<"$dir/home")
}

fits_slurm() { [[ $1 =~ ^[A-Za-z0-9._/+-]+$ ]] && ((${#1} <= 60)); }

# make_place makes the folder, private unless it is there already, and the link where one is needed.
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
  printf '%s\n' "$home" >"$dir/home"
  mkdir -p -- "$dir"/{etc,run,log,state,spool,pids}
  mkdir -m 700 -- "$dir/db"
}

# lock_place keeps a second up, down or node on the same folder waiting. Daemons close descriptor 9.
lock_place() {
  [[ -O $dir ]] || { say "$dir belongs to somebody else" && return 1; }
  exec 9<"$dir"
  flock --wait 120 9 || { say "another up or down is at work in $dir" && return 1; }
}

# remove_place removes what make_place made. A folder that held something else stays with that.
remove_place() {
  rm -rf -- "${dir:?}"/{etc,run,log,state,spool,pids,db,home}
  if [[ $home != "$dir" && $home == /tmp/slurm-*/s && -L $home ]]; then
    rm -f -- "$home" && rmdir -- "${home%/s}"
  fi
  rmdir -- "$dir" 2>/dev/null || true
}
