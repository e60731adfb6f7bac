#!/usr/bin/env bash
# The command `ditbench`: activate the site and run `python -m PART COMMAND`. env/create.sh links it into
# the virtualenv: `.venv/bin/ditbench`, or `ditbench` after `source env/activate.sh`.
[ -n "${BASH_VERSION-}" ] || { echo "run it with bash: bash $0 ..." >&2; exit 2; }
set -euo pipefail

# tests/env/test_ditbench.py compares this list with the commands that there are.
usage() {
  cat <<'END'
usage: ditbench COMMAND ...          `ditbench COMMAND --help` describes a command

launch: jobs on the cluster
  submit             queue a config, resume a run, or run a study
  when               when would it be done, on which GPUs, and for how much
  status             steps, pace and state of runs; live on a terminal
  tail               follow the output of a run
  why                why did it end, and what to type next
  cancel             cancel runs or a study; running runs save first
  rerun              resubmit failed runs
  preflight          probe what a run needs, or check any batch script
  doctor             measure this cluster, and write its site file

analysis: tables, plots and verdicts
  runs               one row per run
  speed              steady rates and speedups, with intervals
  loss               is the loss the same?
  cells              one row per cell of a study
  decide             what a study has settled so far
  ablation           effects of a study's factors
  scaling            speedup and efficiency by number of ranks
  time-to-target     time to a loss, by devices and batch
  analysis fid       quality of samples, with intervals
  cost               GPU-hours, money and energy
  gns                gradient noise scale
  cbs                critical batch size
  profile            longest operations of a trace
  report             everything on one HTML page
  analysis site      a site of runs that one explores
  audit              claims, recomputed
  formats            logs of other trainers that are read
  analysis figure    a figure for a paper: PDF or SVG
  analysis export    runs to wandb, trackio, MLflow or one table
  archive            pack the records of runs
  render             update tables in Markdown pages
  analysis finetune  fine-tuning runs by device and steps

runs: run folders
  show               print a config, every key resolved

configs: the YAML files
  check              are these configs and studies valid?
  schema             list every key

train: pretraining
  train forecast     memory, time and fit, before queueing
  train score        score the samples of a run on digits
  train sample       draw many images
  train fid          Frechet distance of images from a reference
  train export       write the weights of a run
  train gns          gradient noise of checkpoints
  train digits       write the digits as PNG files
  train check-data   check a latent store or image folder

finetune: Flux LoRA
  finetune check-data  check a folder of captioned images
  finetune lora      merge, convert and compare LoRA files
  finetune tiny      make a tiny Flux to try with
END
}

# Print the part whose list holds a command.
part_of() {
  usage | awk -v name="$1" '/^[a-z]+/ { sub(/:.*/, ""); part = $1 } /^  / && $1 == name { print part; exit }'
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
  launch | analysis | configs | train | finetune)
    part=$1
    shift
    ;;
  *)
    part=$(part_of "$1")
    if [[ -z $part ]]; then
      echo "ditbench: no command '$1'; \`ditbench --help\` lists them" >&2
      exit 2
    fi
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
# shellcheck source=env/activate.sh
source "$root/env/activate.sh"
# Do not import a folder named train/ from the current directory.
export PYTHONSAFEPATH=1
exec python -m "$part" "$@"
