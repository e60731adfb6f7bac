# shellcheck shell=bash
# A cluster of which nothing is known: GPUs per node by type, as most take them, and the default
# partition. Chosen by SITE=generic or `--site generic`.

site_flags() {
  printf '%s\n' "--nodes=$2" --ntasks-per-node=1 "--gpus-per-node=${1:+$1:}$3"
}
