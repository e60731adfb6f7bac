#!/usr/bin/env bash
# Demonstrate pretraining: train digits on one rank and on two nodes, then compare. `make demo`
# Needs no Slurm or GPU; takes about 3 minutes on 2 cores.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=env/activate.sh
source "$ROOT/env/activate.sh"
LOGS=$LOGS/demo-$(date +%m%d-%H%M%S)-$$
export LOGS
umask "$UMASK"
config=$ROOT/configs/pretrain/digits.yaml

echo "== one rank"
LOCAL_NODES=1 bash "$ROOT/jobs/pretrain.sbatch" "$config" resources.ranks_per_node=1
one=$(echo "$LOGS"/digits-*)

echo
echo "== two nodes of one rank"
LOCAL_NODES=2 bash "$ROOT/jobs/pretrain.sbatch" "$config" resources.ranks_per_node=1
two=$(find "$LOGS" -mindepth 1 -maxdepth 1 -name 'digits-*' ! -path "$one")

echo
echo "== are the samples good?"
python -m train score "$one"

echo
echo "== which is faster, and does it learn the same?"
python -m analysis runs "$LOGS"
echo
python -m analysis speed "$one" "$two"
echo
python -m analysis loss "$one" "$two" --plot "$LOGS/loss.png"

echo
echo "sample grid: $(find "$two/samples" -name '*.png' | sort | tail -n 1)"
echo "loss plot:   $LOGS/loss.png"
