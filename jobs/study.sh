#!/usr/bin/env bash
# Carry out a study from its plan to its report: on the cluster where there is a Slurm, else here.
#   make study NAME=a-small                     configs/studies/NAME.yaml
#   jobs/study.sh NAME|STUDY.yaml [key=v1,v2 ...]
# Called again, it goes on with what is missing or failed. Ctrl-C ends the wait, not the study.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if (($# == 0)) || [[ -z $1 ]]; then
  echo "usage: make study NAME=NAME, one of:" "$(cd "$ROOT/configs/studies" && echo *.yaml)" >&2
  exit 2
fi
study=$1
[[ -e $study ]] || study=$ROOT/configs/studies/$study.yaml
shift
# shellcheck source=env/activate.sh
source "$ROOT/env/activate.sh"
umask "$UMASK"

echo "== plan"
python -m launch plan "$study" "$@"

where=()
if command -v sbatch >/dev/null && sinfo &>/dev/null; then
  echo
  echo "== preflight"
  python -m launch preflight "$study" "$@"
else
  where=(--local)
fi

echo
echo "== submit"
said=$(python -m launch submit "$study" "$@" "${where[@]}" | tee /dev/stderr)
folder=$(sed -n 's/^study: //p' <<<"$said")

echo
echo "== wait"
status=0
python -m launch status "$folder" --wait || status=$?

echo
echo "== report"
# What was submitted last writes it: a job of its own, or the process that went through the cells.
report=$(sed -n 's/^report: //p' <<<"$said")
process=$(sed -n 's/^process: //p' <<<"$said")
while [[ -n $report && -n $(squeue -h -j "$report" 2>/dev/null) ]]; do sleep 2; done
while [[ -n $process ]] && kill -0 "$process" 2>/dev/null; do sleep 1; done
cat "$folder/ablation.txt" 2>/dev/null || true
echo "report: $folder/report.html"
exit "$status"
