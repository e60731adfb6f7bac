#!/usr/bin/env bash
# Print the site's settings for a job, for programs: SITE, LOGS, UMASK, VENV, CONTAINER, then the flags of sbatch,
# each terminated by NUL. Loads no modules.
#   env/describe.sh GPU NODES GPUS_PER_NODE       an empty GPU means any
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=env/site.sh
source "$root/env/site.sh"
read_site "$root/env/sites"

printf '%s\0' "$SITE" "${LOGS:-$root/logs}" "${UMASK:-077}" "${VENV:-$root/.venv}" "${CONTAINER-}"
flags=$(job_flags "$@")
mapfile -t flags <<<"$flags"
printf '%s\0' "${flags[@]}"
