#!/usr/bin/env bash
# The command `ditbench`: activate the site and run `python -m PART COMMAND`. env/create.sh links it into
# the virtualenv: `.venv/bin/ditbench`, or `ditbench` after `source env/activate.sh`.
[ -n "${BASH_VERSION-}" ] || { echo "run it with bash: bash $0 ..." >&2; exit 2; }
set -euo pipefail

# tests/env/test_ditbench.py compares these lists with the commands that there are.
usage() {
  cat <<'END'
usage: ditbench COMMAND ...        `ditbench COMMAND --help` describes a command

before a job
  doctor    measure how this cluster behaves, and write its site file
  check     is it sound? config, study, batch script, images, latents, LoRA
  plan      does it fit, where, when, for how much, and what would be submitted?
  submit    queue a batch script or a config, resume a run, or run a study
while it runs
  status    steps, pace and state of runs; live on a terminal
  tail      follow the output of a run
  why       why did it end, and what to type next
  cancel    cancel runs or a study; running runs save first
  rerun     resubmit failed runs
afterwards
  runs      one row per run; --detect: what went wrong; --formats: logs read
  compare   speed, loss and quality of two runs or arms: one verdict each
  speed     rates and speedups, with intervals
  loss      is the loss the same?
  cells     one row per cell of a study; --ablation, --scaling, --decided
  target    time to a loss, by devices and batch; --critical-batch
  noise     gradient noise scale
  cost      GPU-hours and energy
  report    everything on one HTML page; --check
  export    runs to wandb or one table
  audit     claims, recomputed
  archive   pack the records of runs
by hand
  show      a config, every key resolved; `show pretrain`: what each key means
  train     fid: the Frechet distance of images from a reference
  finetune  tiny: a Flux to try with
END
}

case ${1-} in
  '')
    usage >&2
    exit 2
    ;;
  -h | --help | help)
    usage
    exit
    ;;
  doctor | check | plan | submit | status | tail | why | cancel | rerun) part=launch ;;
  runs | compare | speed | loss | cells | target | noise | cost | report | export | audit | archive)
    part=analysis
    ;;
  show) part=runs ;;
  launch | analysis | train | finetune)
    part=$1
    shift
    ;;
  *)
    echo "ditbench: no command '$1'; \`ditbench --help\` lists them" >&2
    exit 2
    ;;
esac

# Several checkouts may share a virtualenv: prefer the one whose .venv/bin/ditbench was typed; for a
# plain `ditbench`, the activated one.
roots=("$(dirname "$0")/../..")
[[ $(command -v ditbench) != "$0" ]] || roots=("${PYTHONPATH-}" "${roots[@]}")
roots+=("$(dirname "$(readlink -f "$0")")/..")
for root in "${roots[@]}"; do
  [[ ! -f $root/env/ditbench.sh ]] || break
done
# In an activated shell this puts the virtualenv before PATH once more: a user's script gets it as it is.
export ACTIVATED_PATH=$PATH
# shellcheck source=env/activate.sh
source "$root/env/activate.sh"
if [[ $part == train || $part == finetune ]] &&
  [[ -f ${VIRTUAL_ENV-}/.installed-light && ! -f $VIRTUAL_ENV/.installed-requirements ]]; then
  echo "ditbench $part: needs torch; run env/create.sh" >&2
  exit 2
fi
# Do not import a folder named train/ from the current directory.
export ACTIVATED_SAFEPATH=${PYTHONSAFEPATH-} PYTHONSAFEPATH=1
exec python -m "$part" "$@"
