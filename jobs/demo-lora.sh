#!/usr/bin/env bash
# Demonstrate fine-tuning: a tiny random Flux, five captioned images, training, sampling. `make demo-lora`
# Needs no Slurm, GPU or weights; takes less than a minute on 2 cores.
[ -n "${BASH_VERSION-}" ] || { echo "run it with bash: bash $0 ..." >&2; exit 2; }
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=env/activate.sh
source "$ROOT/env/activate.sh"
LOGS=$LOGS/demo-lora-$(date +%m%d-%H%M%S)-$$
export LOGS
umask "$UMASK"
flux=$LOGS/flux

echo "== a random Flux and five images"
mkdir -p "$LOGS"
python -m finetune tiny "$flux"

echo
echo "== are the images and captions good?"
python -m finetune check-data "$flux/images" --resolution 32 --sheet "$LOGS/sheet.png"

echo
echo "== train; validation_gain is the reduction of the loss at fixed noise by the LoRA"
LOCAL_NODES=1 bash "$ROOT/jobs/finetune.sbatch" "$ROOT/configs/finetune/tiny.yaml" engine=embedded \
  train.steps=100 checkpoint.every=50 sample.every=50 validation.every=50 resources.ranks_per_node=1 \
  "flux.folder=$flux/model" "flux.assistant_lora=$flux/assistant.safetensors" "data.folder=$flux/images"
run=$(echo "$LOGS"/tiny-*)

echo
echo "== sample: seconds per image, the first one separately"
LOCAL_NODES=1 bash "$ROOT/jobs/infer.sbatch" "$run" 'prompts=["[trigger] at home"]' images=4 \
  resources.ranks_per_node=1
drawn=$(echo "$LOGS"/infer-*)

echo
python -m analysis runs "$LOGS"
echo
echo "contact sheet: $LOGS/sheet.png"
echo "samples:       $run/samples"
echo "LoRA:          $(find "$run/lora" -maxdepth 1 -name 'step-*' | sort | tail -n 1)"
echo "drawn:         $drawn/samples/all.png"
