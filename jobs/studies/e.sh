# shellcheck shell=bash
# Study E: what do layouts, asynchronous checkpoints and recomputation cost a DiT on several nodes?
# At the end the longest operations of its profiled steps.

study "e-layouts$SIZE" "$@"
run=$(find "$FOLDER/cells" -mindepth 1 -maxdepth 1 ! -name '*_r[0-9]*' | sort | head -n 1)
ask cat "$run/profile/attempt-001/rank-00000.txt"
