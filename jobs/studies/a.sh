# shellcheck shell=bash
# Study A: which of layout, precision, checkpointing, compile, patch and batch make a DiT train faster?
# Small version: a grid of 24 runs, and 6 runs that first find their largest batch; 7 minutes on 2 cores.

if [[ $SIZE == -small ]]; then
  study a-grid-small "$@"
  study a-auto-small "$@"
else
  study a-0.5b "$@"
  study a-7b "$@"
  study a-auto "$@"
fi
