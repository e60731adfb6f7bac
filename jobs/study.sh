#!/usr/bin/env bash
# Run a study from its plan to its report: on the cluster if Slurm answers, else on this machine.
#   make study NAME=a-small             one of the five studies (jobs/studies/), or configs/studies/NAME.yaml
#   jobs/study.sh NAME|STUDY.yaml [key=v1,v2 ...]
# Called again, it runs the missing and failed cells. Ctrl-C ends the wait, not the study.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
NAME=${1-}
# The size of a recipe: the full study, or its small version.
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

# Run one grid, and set FOLDER to its folder.
study() {
  # shellcheck disable=SC2034  # the eval below sets ARRAY too
  local file=$1 where=() results status=0 STUDY='' ARRAY='' REPORT='' PROCESS=''
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
  results=$(python -m launch submit --shell "$file" "$@" "${where[@]}")
  # Sets STUDY, and ARRAY and REPORT (jobs) or PROCESS (a local process).
  eval "$results"
  FOLDER=$STUDY
  echo "study: $FOLDER"

  echo
  echo "== wait"
  python -m launch status "$FOLDER" --wait || status=$?

  echo
  echo "== report"
  # The report is written by its own job, or at the end of the local process.
  while [[ -n $REPORT && -n $(squeue -h -j "$REPORT" 2>/dev/null) ]]; do sleep 2; done
  while [[ -n $PROCESS ]] && kill -0 "$PROCESS" 2>/dev/null; do sleep 1; done
  cat "$FOLDER/cells.txt" "$FOLDER/ablation.txt" 2>/dev/null || true
  echo "report: $FOLDER/report.html"
  return "$status"
}

# Print a command, then run it.
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
