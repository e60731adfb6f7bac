# shellcheck shell=bash
# An unknown cluster: GPUs per node by type, as most clusters accept, and the default partition.
# Select it by SITE=generic or `--site generic`.

site_flags() {
  printf '%s\n' "--nodes=$2" --ntasks-per-node=1 "--gpus-per-node=${1:+$1:}$3"
}
