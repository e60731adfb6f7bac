# shellcheck shell=bash
# Your own machine: no modules, runs in the checkout. The default if no other site matches. To
# describe a cluster, copy env/sites/example.sh.

site_flags() {
  printf '%s\n' "--nodes=$2" --ntasks-per-node=1 "--gpus-per-node=${1:+$1:}$3"
}

# Threads that spin while waiting stall one another on a machine that also runs other programs.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
