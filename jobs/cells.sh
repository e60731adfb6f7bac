#!/usr/bin/env bash
# The cells of a study one after the other on this machine, then its report; no Slurm needed.
#   jobs/cells.sh STUDY KIND LIST      LIST: a file with the name of a cell per line
# `python -m launch submit STUDY --local` starts it. `touch STUDY/STOP` ends it before its next cell.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
STUDY=$1 KIND=$2 LIST=$3

# Each cell is a job of its own, whose failure is in its folder and is none of the next one's.
while read -r cell <&3; do
  if [[ -e $STUDY/STOP ]]; then
    echo "stopped before $cell"
    exit 0
  fi
  bash "$ROOT/jobs/$KIND.sbatch" "$STUDY/cells/$cell" || echo "$cell: exit $?"
done 3<"$LIST"

if grep -qx 'report: true' "$STUDY/study.yaml"; then
  bash "$ROOT/jobs/report.sbatch" "$STUDY"
fi
