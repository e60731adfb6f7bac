# shellcheck shell=bash
# The startup file of the shell that env/interactive.sh opens. It reads ~/.bashrc first, so that a
# PATH set there does not hide the virtualenv.

if [[ -f ~/.bashrc ]]; then
  # shellcheck disable=SC1090
  source ~/.bashrc
fi
# shellcheck source=env/activate.sh
source "$(dirname "${BASH_SOURCE[0]}")/activate.sh"
umask "$UMASK"
PS1="(${SLURM_JOB_ID-}: ${SLURM_JOB_NODELIST-}) ${PS1-\\w\\$ }"
