# shellcheck shell=bash
# Study E: what do layouts, asynchronous checkpoints and recomputation cost a DiT on several nodes?
# First the forecast of the base config; at the end the time breakdown of a profiled step.

base=dit-0.5b
[[ $SIZE != -small ]] || base=digits
ask python -m train forecast "$ROOT/configs/pretrain/$base.yaml" --gpu a40,a100
study "e-layouts$SIZE" "$@"
run=$(find "$FOLDER/cells" -mindepth 1 -maxdepth 1 ! -name '*_r[0-9]*' | sort | head -n 1)
ask python -m analysis profile "$run"
