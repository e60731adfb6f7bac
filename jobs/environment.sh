# shellcheck shell=bash
# Set what torch, Triton, NCCL and gloo read from the environment of a node's ranks (docs/slurm.md).
# A variable that the user or the site file has set stays as it is.

set_default() { # set_default NAME VALUE
  [[ -n ${!1+set} ]] || export "$1=$2"
}

# Keep compiled kernels in the user's cache: a study compiles a network once, not once per cell. Torch's
# own keys keep versions and GPUs apart. They are code, and by default inductor's are in a folder of
# /tmp that any user of the node can make first. If others could write here, the run's folder is taken.
keep_kernels() {
  local cache=${XDG_CACHE_HOME:-${HOME-}/.cache}/ditbench/kernels
  if ! (umask 077 && mkdir -p "$cache") 2>/dev/null || [[ ! -O $cache ]] ||
    [[ -n $(find "$cache" -maxdepth 0 -perm /022) ]]; then
    cache=${ATTEMPT%/attempts/*}/cache
    (umask 077 && mkdir -p "$cache")
  fi
  set_default TORCHINDUCTOR_CACHE_DIR "$cache/inductor"
  set_default TRITON_CACHE_DIR "$cache/triton"
}

set_gpu_defaults() {
  # Torch 2.8 reads only the older name, and 2.9 takes this setting only from it; the newer name beside
  # it avoids a warning.
  if [[ -z ${PYTORCH_ALLOC_CONF+set}${PYTORCH_CUDA_ALLOC_CONF+set} ]]; then
    export PYTORCH_ALLOC_CONF=expandable_segments:True PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
  fi
  # NCCL's flight recorder: at a timeout each rank writes its newest collectives, for torchfrtrace.
  set_default TORCH_FR_BUFFER_SIZE 2000
  set_default TORCH_NCCL_DUMP_ON_TIMEOUT 1
  set_default TORCH_FR_DUMP_TEMP_FILE "$ATTEMPT/ranks/nccl-"
}

# Name the interface that leads to another node of the job. By default gloo takes the interface of
# the host's name, which may be 127.0.1.1 or in a network for management. Without an answer nothing is set.
set_gloo_interface() { # set_gloo_interface PEER
  local address interface
  [[ -z ${GLOO_SOCKET_IFNAME+set} ]] || return 0
  address=$(getent ahosts "$1" | awk '{ print $1; exit }') || return 0
  # Not every user has the folder of `ip` in PATH.
  interface=$(PATH=$PATH:/usr/sbin:/sbin ip -o route get "$address" 2>/dev/null |
    sed -n 's/.* dev \([^ ]*\) .*/\1/p') || return 0
  # A name that resolves to loopback says nothing about the network.
  if [[ -n $interface && $interface != lo ]]; then
    export GLOO_SOCKET_IFNAME=$interface
  fi
}
