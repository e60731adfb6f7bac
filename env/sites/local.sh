# shellcheck shell=bash
# A machine of one's own: no modules, runs in the checkout. What holds where no other site fits;
# to describe a cluster, copy env/sites/example.sh.

site_flags() {
  printf '%s\n' "--nodes=$2" --ntasks-per-node=1 "--gpus-per-node=${1:+$1:}$3"
}

# Threads that spin while they wait stall one another on a machine that is used for more than this.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
