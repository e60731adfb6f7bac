#!/usr/bin/env bash
# Run the cells of a study one after another on this machine, then its report; needs no Slurm.
#   jobs/cells.sh STUDY KIND LIST      LIST: file with one cell name per line; in an interleaved study,
#                                      one turn per line: CELL ID:STEP
# `ditbench submit STUDY --local` starts it. `touch STUDY/STOP` ends it before the next cell.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
STUDY=$1 KIND=$2 LIST=$3

# Each cell is a job of its own; its failure is recorded in its folder and does not stop the others.
while read -r cell turn <&3; do
  if [[ -e $STUDY/STOP ]]; then
    echo "stopped before $cell"
    exit 0
  fi
  if [[ $KIND == command ]]; then
    "$STUDY/cells/$cell/script/start" || echo "$cell: exit $?"
  else
    DITBENCH_TURN=$turn bash "$ROOT/jobs/$KIND.sbatch" "$STUDY/cells/$cell" || echo "$cell: exit $?"
  fi
done 3<"$LIST"

if grep -qx 'report: true' "$STUDY/study.yaml"; then
  bash "$ROOT/jobs/report.sbatch" "$STUDY"
fi
