#!/usr/bin/env bash
# What the site says of a job, for programs: SITE, LOGS, UMASK and VENV, then the flags of sbatch,
# each ended by a NUL. Loads no modules.
#   env/describe.sh GPU NODES GPUS_PER_NODE       GPU may be empty: any
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=env/site.sh
source "$root/env/site.sh"
read_site "$root/env/sites"

printf '%s\0' "$SITE" "${LOGS:-$root/logs}" "${UMASK:-077}" "${VENV:-$root/.venv}"
flags=$(job_flags "$@")
mapfile -t flags <<<"$flags"
printf '%s\0' "${flags[@]}"
