#!/usr/bin/env bash
# Make the virtualenv of this site, or complete it. What is there already is left as it is.
#   env/create.sh        what jobs, launcher and analysis need
#   env/create.sh dev    and what tests, checks and benchmarks need
#   env/create.sh ai-toolkit    ai-toolkit where AI_TOOLKIT says, in a virtualenv of its own
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${VENV:-$root/.venv}

# shellcheck source=env/site.sh
source "$root/env/site.sh"
read_site "$root/env/sites"
load_modules

python_of_site() {
  local candidate
  for candidate in python3.11 python3 python3.12 python3.13; do
    if command -v "$candidate" >/dev/null &&
      "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "no Python of at least 3.11 with venv; on Debian and Ubuntu: apt install python3-venv;" \
    "on a cluster: name its module in env/sites/$SITE.sh (MODULES)" >&2
  return 1
}

# A set of requirements counts as installed when its text stands beside the packages.
install_set() {
  local name=$1 text
  shift
  text=$(printf '%s\n' "$@" && cat "$root/env/$name.txt")
  if [[ -f $venv/.installed-$name && $(<"$venv/.installed-$name") == "$text" ]]; then
    return
  fi
  echo "installing $name into $venv (the first time takes some minutes)" >&2
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
  printf '%s\n' "$text" >"$venv/.installed-$name.partial"
  mv "$venv/.installed-$name.partial" "$venv/.installed-$name"
}

# The version that its keys and its ways are known of (configs/checks/aitoolkit-keys.yaml).
AI_TOOLKIT_COMMIT=27a03a91
AI_TOOLKIT_SOURCE=${AI_TOOLKIT_SOURCE:-https://github.com/ostris/ai-toolkit}

clone_ai_toolkit() {
  [[ ! -f $AI_TOOLKIT/run.py ]] || return 0
  if ! GIT_TERMINAL_PROMPT=0 git clone --quiet --no-checkout "$AI_TOOLKIT_SOURCE" "$AI_TOOLKIT" ||
    ! git -C "$AI_TOOLKIT" checkout --quiet "$AI_TOOLKIT_COMMIT"; then
    echo "cannot get commit $AI_TOOLKIT_COMMIT of $AI_TOOLKIT_SOURCE; run this where the network is" \
      "(a login node), or copy a checkout of that commit to $AI_TOOLKIT and run it again" >&2
    return 1
  fi
}

if [[ ${1-} == ai-toolkit ]]; then
  if [[ -z ${AI_TOOLKIT-} ]]; then
    echo "where shall ai-toolkit be? Set AI_TOOLKIT=/a/folder in env/sites/$SITE.sh" >&2
    exit 2
  fi
  clone_ai_toolkit
  venv=$AI_TOOLKIT/venv
fi

mkdir -p "$(dirname "$venv")"
exec 9>"$venv.lock"
flock 9

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
  python=$(python_of_site)
  "$python" -m venv --clear "$venv"
fi

if [[ ${1-} == ai-toolkit ]]; then
  # Its requirements name a commit of diffusers, which only git could fetch.
  grep -v '^git+' "$AI_TOOLKIT/requirements_base.txt" >"$venv/requirements.txt"
  index=()
  [[ -n ${TORCH_INDEX-} ]] && index=(--extra-index-url "$TORCH_INDEX")
  install_set ai-toolkit "${index[@]}" -r "$root/env/ai-toolkit.txt" -r "$venv/requirements.txt"
  exit
fi

torch=(-r "$root/env/torch.txt")
# A site names packages and index as words.
# shellcheck disable=SC2206
[[ -n ${TORCH-} ]] && torch=($TORCH)
[[ -n ${TORCH_INDEX-} ]] && torch+=(--index-url "$TORCH_INDEX")
install_set torch "${torch[@]}"
install_set requirements -r "$root/env/requirements.txt"
if [[ ${1-} == dev ]]; then
  install_set requirements-dev -r "$root/env/requirements-dev.txt"
fi
