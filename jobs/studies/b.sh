# shellcheck shell=bash
# Study B: how much faster is an A100 than an A40 at training a LoRA of Flux, and at sampling with it?
# Small version, on this machine's CPU: does a step take as long in a run of 100 steps as in one of 50?

where=()
if [[ $SIZE == -small ]]; then
  flux=$LOGS/tiny-flux
  [[ -e $flux/model/model_index.json ]] || python -m finetune tiny "$flux"
  where=("flux.folder=$flux/model" "data.folder=$flux/images")
fi
study "b-lora$SIZE" "${where[@]}" "$@"
tuned=$FOLDER

# Sample with the LoRA of the first run of each length.
short=$(find "$tuned/cells" -maxdepth 1 -name '*_short' | sort | head -n 1)
long=$(find "$tuned/cells" -maxdepth 1 -name '*_long' | sort | head -n 1)
study "b-draw$SIZE" "run=$short,$long"
ask python -m analysis cells "$tuned" --by step
ask python -m analysis cells "$FOLDER"
