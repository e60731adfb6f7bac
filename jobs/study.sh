#!/usr/bin/env bash
# Run a study from its plan to its report: on the cluster if Slurm answers, else on this machine.
#   make study NAME=a-small             one of the five studies (jobs/studies/), or configs/studies/NAME.yaml
#   jobs/study.sh NAME|STUDY.yaml [key=v1,v2 ...]
# Ctrl-C or a closed terminal ends the wait, not the grid that is queued. Called again, it runs the missing
# and failed cells, then the next grid.
[ -n "${BASH_VERSION-}" ] || { echo "run it with bash: bash $0 ..." >&2; exit 2; }
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

# FOLDER is the folder of the grid that was submitted last.
arguments=("$@") FOLDER=''

on_interrupt() {
  echo >&2
  local folder again=(make study NAME="$NAME")
  [[ $NAME != */* && ${#arguments[@]} == 1 ]] || again=(jobs/study.sh "${arguments[@]}")
  folder=$(printf %q "$FOLDER")
  [[ -z $FOLDER ]] || echo "the study goes on $(has_slurm && echo in Slurm || echo on this machine);" \
    "look: ditbench status $folder; take up again: ${again[*]};" \
    "end: ditbench cancel $folder" >&2
  exit 130
}
trap on_interrupt INT

show_report() {
  echo
  echo "== report"
  cat "$FOLDER/cells.txt" "$FOLDER/ablation.txt" 2>/dev/null || true
  echo "report: $FOLDER/report.html"
}

# Run one grid, and set FOLDER to its folder.
study() {
  local file=$1 where=() results status=0 report process
  shift
  [[ -e $file ]] || file=$ROOT/configs/studies/$file.yaml
  echo
  echo "== $(basename "$file" .yaml)"
  if has_slurm; then
    echo
    echo "== plan"
    python -m launch plan "$file" "$@"
  else
    where=(--local)
  fi

  echo
  echo "== submit"
  results=$(python -m launch submit "$file" "$@" "${where[@]}")
  FOLDER=$(sed -n 's/^study: //p' <<<"$results")
  report=$(sed -n 's/^report: //p' <<<"$results")
  process=$(sed -n 's/^process: //p' <<<"$results")
  echo "study: $FOLDER"
  echo
  echo "== wait"
  python -m launch status "$FOLDER" --wait || status=$?
  # The report is written by its own job, or at the end of the local process.
  while [[ -n $report && -n $(squeue -h -j "$report" 2>/dev/null) ]]; do sleep 2; done
  while [[ -n $process ]] && kill -0 "$process" 2>/dev/null; do sleep 1; done
  show_report
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
