# shellcheck shell=bash
# Study C: how noisy is the gradient of a DiT, over training and over t, and how large may a batch be?
# Experiments 1 to 4 on the checkpoints of one run, then the check: branches from it at larger batches.

if [[ $SIZE != -small && ! -e data/imagenet256-sd ]]; then
  echo "data/imagenet256-sd does not exist; create the latents first, once:" >&2
  echo "  sbatch --gpus-per-node=a40:2 jobs/encode.sbatch configs/encode/imagenet256-sd.yaml" >&2
  exit 2
fi
study "c-train$SIZE" "$@"
run=$FOLDER/cells/base
for experiment in 1 2 3 4; do
  study "c-$experiment$SIZE" "run=$run"
  ask python -m analysis noise "$FOLDER"
done
study "c-branches$SIZE" "model.init_from=$run"
ask python -m analysis target --critical-batch "$FOLDER" --target validation_loss
