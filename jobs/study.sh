#!/usr/bin/env bash
# Carry out a study from its plan to its report: on the cluster where there is a Slurm, else here.
#   make study NAME=a-small             one of the five studies (jobs/studies/), or configs/studies/NAME.yaml
#   jobs/study.sh NAME|STUDY.yaml [key=v1,v2 ...]
# Called again, it goes on with what is missing or failed. Ctrl-C ends the wait, not the study.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
NAME=${1-}
# Of a recipe: which of its two sizes is asked for.
export SIZE=
[[ $NAME != *-small ]] || SIZE=-small
recipe=$ROOT/jobs/studies/${NAME%-small}.sh
if [[ -z $NAME || ! (-e $recipe || -e $NAME || -e $ROOT/configs/studies/$NAME.yaml) ]]; then
  [[ -z $NAME ]] || echo "$NAME: no such study" >&2
  echo "usage: make study NAME=NAME: a, b, c, d or e, on GPUs; a-small, b-small, c-small, d-small or e-small," >&2
  echo "on any machine; or one grid: $(basename -as .yaml "$ROOT"/configs/studies/*.yaml | tr '\n' ' ')" >&2
  exit 2
fi
# shellcheck source=env/activate.sh
source "$ROOT/env/activate.sh"
umask "$UMASK"
export PYTHONSAFEPATH=1

has_slurm() {
  command -v sbatch >/dev/null && sinfo &>/dev/null
}

# Carry out one grid; FOLDER is then its folder.
study() {
  local file=$1 where=() said status=0 report process
  shift
  [[ -e $file ]] || file=$ROOT/configs/studies/$file.yaml
  echo
  echo "== plan: $(basename "$file" .yaml)"
  python -m launch plan "$file" "$@"

  if has_slurm; then
    echo
    echo "== preflight"
    python -m launch preflight "$file" "$@"
  else
    where=(--local)
  fi

  echo
  echo "== submit"
  said=$(python -m launch submit "$file" "$@" "${where[@]}")
  echo "$said"
  FOLDER=$(sed -n 's/^study: //p' <<<"$said")

  echo
  echo "== wait"
  python -m launch status "$FOLDER" --wait || status=$?

  echo
  echo "== report"
  # What was submitted last writes it: a job of its own, or the process that went through the cells.
  report=$(sed -n 's/^report: //p' <<<"$said")
  process=$(sed -n 's/^process: //p' <<<"$said")
  while [[ -n $report && -n $(squeue -h -j "$report" 2>/dev/null) ]]; do sleep 2; done
  while [[ -n $process ]] && kill -0 "$process" 2>/dev/null; do sleep 1; done
  cat "$FOLDER/cells.txt" "$FOLDER/ablation.txt" 2>/dev/null || true
  echo "report: $FOLDER/report.html"
  return "$status"
}

# Print a command, then what it says.
ask() {
  echo
  echo "\$ $*"
  "$@"
}

if [[ -e $recipe ]]; then
  shift
  if [[ -z $SIZE ]] && ! has_slurm; then
    echo "study $NAME is for a cluster, and no Slurm answers here; try: make study NAME=$NAME-small" >&2
    exit 2
  fi
  # shellcheck source=/dev/null
  source "$recipe"
else
  study "$@"
fi
