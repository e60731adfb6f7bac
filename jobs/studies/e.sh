# shellcheck shell=bash
# Study E: what do layouts, asynchronous checkpoints and recomputation cost a DiT on several nodes?
# At the end the time breakdown of a profiled step.

study "e-layouts$SIZE" "$@"
run=$(find "$FOLDER/cells" -mindepth 1 -maxdepth 1 ! -name '*_r[0-9]*' | sort | head -n 1)
ask python -m analysis profile "$run"
