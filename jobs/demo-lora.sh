#!/usr/bin/env bash
# Demonstrate fine-tuning: a tiny Flux that draws sprites learns another one from five captioned images.
# `make demo-lora` needs no Slurm, GPU or weights; takes about a minute on 2 idle cores.
[ -n "${BASH_VERSION-}" ] || { echo "run it with bash: bash $0 ..." >&2; exit 2; }
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=env/activate.sh
source "$ROOT/env/activate.sh"
LOGS=$LOGS/demo-lora-$(date +%m%d-%H%M%S)-$$
export LOGS
umask "$UMASK"
flux=$LOGS/flux

echo "== make a tiny Flux and five images of a subject; train the Flux on other sprites (20 s)"
mkdir -p "$LOGS"
python -m finetune tiny "$flux" --size demo

echo
echo "== are the images and captions good?"
python -m launch check "$flux/images" --resolution 64

echo
echo "== train a LoRA; validation_gain is by how much it reduces the loss at fixed noise"
LOCAL_NODES=1 bash "$ROOT/jobs/finetune.sbatch" "$ROOT/configs/finetune/tiny.yaml" engine=embedded \
  train.steps=400 checkpoint.every=200 sample.every=200 validation.every=200 log.every=25 \
  lora.rank=32 optimizer.lr=0.01 optimizer.decay=1.0 optimizer.decay_shape=cosine \
  train.gradient_checkpointing=false data.resolutions=[80] sample.width=64 sample.height=64 \
  'sample.prompts=["a photo of [trigger]", "[trigger] on a table", "[trigger], close up"]' \
  resources.ranks_per_node=1 "flux.folder=$flux/model" \
  "data.folder=$flux/images"
run=$(echo "$LOGS"/tiny-*)

echo
echo "== draw from it: seconds per image, the first one separately"
LOCAL_NODES=1 bash "$ROOT/jobs/infer.sbatch" "$run" 'prompts=["[trigger] at home"]' images=4 \
  resources.ranks_per_node=1
drawn=$(echo "$LOGS"/infer-*)

echo
echo "== what was learned?"
python -m analysis cells "$run" --of validation_gain
python -m analysis report "$run" "$drawn" --title "LoRA of a tiny Flux" --out "$LOGS/report.html" >/dev/null

echo
echo "LoRA:                            $(find "$run/lora" -maxdepth 1 -name 'step-*' | sort | tail -n 1)"
echo "images and captions:             $flux/images/"
echo "a new prompt, from four noises:  $drawn/samples/prompt-00/"
echo "samples and all else, one page:  $LOGS/report.html"
echo "open it in a browser: xdg-open or open here; from another machine, scp it first: it is one file"
