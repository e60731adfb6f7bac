# shellcheck shell=bash
# Study A: which of layout, precision, checkpointing, compile, patch and batch make a DiT train faster?
# In small: 24 runs of a grid, and 6 that find their largest batch first; about 7 minutes on 2 cores.

if [[ $SIZE == -small ]]; then
  study a-grid-small "$@"
  study a-auto-small "$@"
else
  study a-0.5b "$@"
  study a-7b "$@"
  study a-auto "$@"
fi
