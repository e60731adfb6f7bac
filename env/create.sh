#!/usr/bin/env bash
# Create or complete the virtualenv of this site. Installed packages are left as they are.
#   env/create.sh light         launcher and analysis: check, submit and compare batch scripts, without torch
#   env/create.sh               also for training and fine-tuning
#   env/create.sh dev           also for tests, checks and benchmarks
#   env/create.sh ai-toolkit    ai-toolkit in the folder AI_TOOLKIT, with its own virtualenv
[ -n "${BASH_VERSION-}" ] || { echo "run it with bash: bash $0 ..." >&2; exit 2; }
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

# A set of requirements is installed if a copy of its text is stored in the virtualenv, which several
# checkouts may share.
install_set() {
  local name=$1 text
  shift
  text=$(printf '%s\n' "${@#"$root"/}" && cat "$root/env/$name.txt")
  if [[ -f $venv/.installed-$name && $(<"$venv/.installed-$name") == "$text" ]]; then
    return
  fi
  echo "installing $name into $venv (the first time takes some minutes)" >&2
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
  printf '%s\n' "$text" >"$venv/.installed-$name.partial"
  mv "$venv/.installed-$name.partial" "$venv/.installed-$name"
}

# The version that is tested; configs/checks/aitoolkit_source.py reads the keys of any.
AI_TOOLKIT_COMMIT=27a03a91
AI_TOOLKIT_SOURCE=${AI_TOOLKIT_SOURCE:-https://github.com/ostris/ai-toolkit}

# A checkout appears under its name only when it is whole.
clone_ai_toolkit() {
  local partial
  if [[ ! -f $AI_TOOLKIT/run.py ]]; then
    mkdir -p "$(dirname "$AI_TOOLKIT")"
    partial=$(mktemp -d "$AI_TOOLKIT.XXXXXX")
    if ! GIT_TERMINAL_PROMPT=0 git clone --quiet --no-checkout "$AI_TOOLKIT_SOURCE" "$partial" ||
      ! git -C "$partial" checkout --quiet "$AI_TOOLKIT_COMMIT" || ! all_is_there "$partial" ||
      ! mv -T "$partial" "$AI_TOOLKIT"; then
      rm -rf "$partial"
      echo "cannot get commit $AI_TOOLKIT_COMMIT of $AI_TOOLKIT_SOURCE; run this where there is a network" \
        "(a login node), or copy a checkout of that commit to $AI_TOOLKIT and run it again" >&2
      return 1
    fi
  fi
  if ! all_is_there "$AI_TOOLKIT"; then
    echo "copy them to $AI_TOOLKIT, or delete it and run this again" >&2
    return 1
  fi
}

# git goes on after a file that it cannot read, and a copy may have been cut short.
all_is_there() {
  local lacks
  [[ -e $1/.git ]] || return 0
  lacks=$(git -C "$1" ls-files --deleted)
  [[ -z $lacks ]] && return
  echo "$1 is not a whole checkout: it lacks $(wc -l <<<"$lacks") files, such as ${lacks%%$'\n'*}" >&2
  return 1
}

if [[ ${1-} == ai-toolkit ]]; then
  if [[ -z ${AI_TOOLKIT-} ]]; then
    echo "no folder for ai-toolkit: set AI_TOOLKIT=/a/folder in env/sites/$SITE.sh" >&2
    exit 2
  fi
  clone_ai_toolkit
  venv=$AI_TOOLKIT/venv
fi

mkdir -p "$(dirname "$venv")"
exec 9>"$venv.lock"
flock 9

# A virtualenv of uv has no pip.
if [[ -f $venv/pyvenv.cfg && ! -e $venv/bin/pip ]] && ! compgen -G "$venv/.installed-*" >/dev/null; then
  "$venv/bin/python" -m ensurepip >/dev/null 2>&1 || true
fi
if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
  # Only a partial installation of ours is made anew: VENV may name a folder of the user's.
  if [[ -n $(ls -A "$venv" 2>/dev/null) ]] && ! compgen -G "$venv/.installed-*" >/dev/null; then
    echo "$venv has no pip and was not made by env/create.sh: set VENV to another folder, or delete it" >&2
    exit 2
  fi
  python=$(python_of_site)
  mkdir -p "$venv"
  touch "$venv/.installed-none"
  find "$venv" -mindepth 1 -maxdepth 1 ! -name .installed-none -exec rm -rf {} +
  options=()
  [[ ${TORCH-} != site ]] || options=(--system-site-packages)
  "$python" -m venv "${options[@]}" "$venv"
fi

if [[ ${1-} == ai-toolkit ]]; then
  # Its requirements name a commit of diffusers, which only git could download.
  grep -v '^git+' "$AI_TOOLKIT/requirements_base.txt" >"$venv/requirements.txt"
  if [[ -n ${TORCH_INDEX-} ]]; then
    # All of them from there: builds of two indexes do not import together.
    mapfile -t torch < <(grep '^torch' "$root/env/ai-toolkit.txt")
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --index-url "$TORCH_INDEX" "${torch[@]}"
  fi
  install_set ai-toolkit -r "$root/env/ai-toolkit.txt" -r "$venv/requirements.txt"
  if ! "$venv/bin/python" -c "import torchvision, diffusers, bitsandbytes; from transformers import T5EncoderModel"; then
    rm "$venv/.installed-ai-toolkit"
    echo "$venv is installed, but does not import (above); most often torch and torchvision are of different" \
      "builds: $venv/bin/pip uninstall -y torch torchvision torchaudio, set TORCH_INDEX in env/sites/$SITE.sh to" \
      "one index that has them all, and run this again (the other packages stay)" >&2
    exit 1
  fi
  exit
fi

# Another checkout that shares the virtualenv may have linked its own: env/ditbench.sh finds out.
[[ -e $venv/bin/ditbench ]] || ln -sf "$root/env/ditbench.sh" "$venv/bin/ditbench"

if [[ ${1-} == light && ! -f $venv/.installed-light ]]; then
  # Modules are compiled at their first import: 290 MB, not 410.
  PIP_COMPILE=0 install_set light -r "$root/env/light.txt"
  # Of these only, a virtualenv may hold more.
  rm -rf "$venv"/lib/python3*/site-packages/{scipy,numpy,matplotlib}/{,*/,*/*/}tests
  # Only the page of TensorBoard uses it, and does without it.
  "$venv/bin/python" -m pip uninstall --quiet --yes --disable-pip-version-check tensorboard-data-server
  exit
fi
install_set light -r "$root/env/light.txt"
[[ ${1-} != light ]] || exit 0
if [[ ${TORCH-} == site ]]; then
  "$venv/bin/python" -c "import torch, torchvision" || {
    echo "TORCH=site: the Python of the site's modules has no torch and torchvision (above)" >&2
    exit 2
  }
else
  torch=(-r "$root/env/torch.txt")
  # TORCH of a site file is a list of words.
  # shellcheck disable=SC2206
  [[ -n ${TORCH-} ]] && torch=($TORCH)
  [[ -n ${TORCH_INDEX-} ]] && torch+=(--index-url "$TORCH_INDEX")
  install_set torch "${torch[@]}"
fi
install_set requirements -r "$root/env/requirements.txt"
if [[ ${1-} == dev ]]; then
  install_set requirements-dev -r "$root/env/requirements-dev.txt"
fi
