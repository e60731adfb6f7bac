#!/usr/bin/env bash
# Demonstrate pretraining: train digits on one rank and on two nodes, then compare. `make demo`
# Needs no Slurm or GPU; takes 3 minutes of CPU time.
[ -n "${BASH_VERSION-}" ] || { echo "run it with bash: bash $0 ..." >&2; exit 2; }
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=env/activate.sh
source "$ROOT/env/activate.sh"
LOGS=$LOGS/demo-$(date +%m%d-%H%M%S)-$$
export LOGS
umask "$UMASK"

# Train on NODES local nodes. On a terminal the steps are one line, elsewhere every 25th is printed.
train() { # train NODES
  THIN=25 LOCAL_NODES=$1 bash "$ROOT/jobs/pretrain.sbatch" "$ROOT/configs/pretrain/digits.yaml" \
    resources.ranks_per_node=1 train.steps=500 checkpoint.every=500 \
    evaluate.fid.every=500 evaluate.fid.num=250
}

echo "two trainings of 500 steps: about 2 minutes on 2 idle cores, more beside other programs"
echo
echo "== one rank"
train 1
one=$(echo "$LOGS"/digits-*)

echo
echo "== two nodes of one rank"
train 2
two=$(find "$LOGS" -mindepth 1 -maxdepth 1 -name 'digits-*' ! -path "$one")

echo
echo "== which is faster, does it learn the same, and are its samples as good?"
python -m analysis runs "$LOGS"
python -m analysis loss "$one" "$two" --plot "$LOGS/loss.png" >/dev/null
python -m analysis report "$one" "$two" --title "Digits on one rank and on two" --out "$LOGS/report.html" >/dev/null

echo
echo "sample grid:            $(find "$two/samples" -name '*.png' | sort | tail -n 1)"
echo "loss plot:              $LOGS/loss.png"
echo "everything on one page: $LOGS/report.html"
echo "open it in a browser: xdg-open or open here; from another machine, scp it first: it is one file"

echo
python -m analysis compare "$one" "$two"
