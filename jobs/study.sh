#!/usr/bin/env bash
# Run a study from its plan to its report: on the cluster if Slurm answers, else on this machine.
#   make study NAME=a-small             one of the five studies (jobs/studies/), or configs/studies/NAME.yaml
#   jobs/study.sh NAME|STUDY.yaml [key=v1,v2 ...]
# Called again, it runs the missing and failed cells. Ctrl-C or a closed terminal ends the wait, not the
# study: on a cluster, a small job after the report of each grid of a recipe submits the next one.
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

# The folders of the grids that this recipe has run so far; those in ENDED (a job's) are not run again.
folders=() ended=()
[[ -z ${ENDED-} ]] || mapfile -t ended <<<"$ENDED"
arguments=("$@") FOLDER='' chained=

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

# Jobs that go on with a recipe have the name and the output of its first grid.
chain() {
  basename "${folders[0]}-next"
}

is_chained() {
  [[ -n $(squeue -h --name="$(chain)" -o %i) ]]
}

# Queue a job that runs this script again after the job $1, with the grids so far as ended.
queue_next() {
  local flags job text
  [[ -n ${ENDED-} ]] || rm -f "${folders[0]}"/jobs/next.{status,out}
  mapfile -t flags < <(job_flags "" 1 0)
  text=$(printf 'ENDED=%q exec bash' "$(printf '%s\n' "${folders[@]}")"; printf ' %q' "$ROOT/jobs/study.sh" "${arguments[@]}")
  job=$(sbatch --parsable "${flags[@]}" --dependency="afterany:$1" --job-name="$(chain)" --cpus-per-task=2 \
    --time=01:00:00 --output="${folders[0]//%/%%}/jobs/next.out" --open-mode=append <<<"#!/usr/bin/env bash
$text") || return
  echo "job $job goes on after the report"
}

# Print what the jobs that go on write until none is left, and leave with the status of the last.
follow() {
  local output=${folders[0]}/jobs/next
  echo
  echo "== the next grids, by jobs called $(chain)"
  tail -n +1 -F --pid=$$ "$output.out" 2>/dev/null &
  while is_chained; do sleep 2; done
  # Let it print the last lines, then end it: to --pid a parent that nobody has waited for still lives,
  # and whoever reads our output to its end would wait for this tail.
  sleep 1
  kill "$!" 2>/dev/null || true
  exit "$(cat "$output.status" 2>/dev/null || echo 1)"
}

show_report() {
  echo
  echo "== report"
  cat "$FOLDER/cells.txt" "$FOLDER/ablation.txt" 2>/dev/null || true
  echo "report: $FOLDER/report.html"
}

# Run one grid, and set FOLDER to its folder.
study() {
  # shellcheck disable=SC2034  # the eval below sets JOBS too
  local file=$1 where=() results status=0 STUDY='' JOBS='' REPORT='' PROCESS=''
  shift
  if ((${#ended[@]})); then
    FOLDER=${ended[0]} ended=("${ended[@]:1}")
    folders+=("$FOLDER")
    # The reports of earlier grids are printed already.
    ((${#ended[@]})) || show_report
    python -m launch status "$FOLDER" --wait >/dev/null
    return
  fi
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
  results=$(python -m launch submit --shell "$file" "$@" "${where[@]}")
  # Sets STUDY, and JOBS and REPORT or PROCESS (a local process).
  eval "$results"
  FOLDER=$STUDY
  folders+=("$FOLDER")
  echo "study: $FOLDER"
  if [[ -e $recipe ]] && has_slurm; then
    if [[ -n ${ENDED-} && -n $REPORT ]]; then
      queue_next "$REPORT"
      trap - EXIT
      exit
    elif [[ -z ${ENDED-} ]] && is_chained || { [[ -n $REPORT ]] && queue_next "$REPORT"; }; then
      chained=1
    fi
  fi

  echo
  echo "== wait"
  python -m launch status "$FOLDER" --wait || status=$?
  # The report is written by its own job, or at the end of the local process.
  while [[ -n $REPORT && -n $(squeue -h -j "$REPORT" 2>/dev/null) ]]; do sleep 2; done
  while [[ -n $PROCESS ]] && kill -0 "$PROCESS" 2>/dev/null; do sleep 1; done
  [[ -z $chained ]] || follow
  show_report
  return "$status"
}

# Print a command, then run it; not again after the grids that ended before.
ask() {
  ((${#ended[@]})) && return
  echo
  echo "\$ $*"
  "$@"
}

if [[ -e $recipe ]]; then
  shift
  if [[ -n ${ENDED-} ]]; then
    first=${ended[0]}
    trap 'echo $? >"$first/jobs/next.status"' EXIT
  fi
  if [[ -z $SIZE ]] && ! has_slurm; then
    echo "study $NAME is for a cluster, and no Slurm answers here; try: make study NAME=$NAME-small" >&2
    exit 2
  fi
  # shellcheck source=/dev/null
  source "$recipe"
else
  study "$@"
fi
