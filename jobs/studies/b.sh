# shellcheck shell=bash
# Study B: how much faster is an A100 than an A40 at a LoRA of Flux, and at drawing with it?
# In small, on this machine's CPU: does a step of a run of 100 steps take as long as one of 50?

where=()
if [[ $SIZE == -small ]]; then
  flux=$LOGS/tiny-flux
  [[ -e $flux/model/model_index.json ]] || python -m finetune tiny "$flux"
  where=("flux.folder=$flux/model" "flux.assistant_lora=$flux/assistant.safetensors" "data.folder=$flux/images")
fi
study "b-lora$SIZE" "${where[@]}" "$@"
tuned=$FOLDER

# Drawing, with the LoRA of the first run of either length.
short=$(find "$tuned/cells" -maxdepth 1 -name '*_short' | sort | head -n 1)
long=$(find "$tuned/cells" -maxdepth 1 -name '*_long' | sort | head -n 1)
study "b-draw$SIZE" "run=$short,$long"
ask python -m analysis finetune "$tuned" "$FOLDER" --plot "$tuned/samples.png"
