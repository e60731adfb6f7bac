# Write the configuration of one cluster into etc/.
# shellcheck shell=bash source-path=SCRIPTDIR source=place.sh
source "${BASH_SOURCE[0]%/*}/place.sh"

# free_ports COUNT prints the first of COUNT consecutive free ports. They are below 20000, where the
# torchrun ports of the tests begin, and far below the ephemeral ports.
free_ports() {
  local taken first port tries
  taken=" $(awk 'FNR > 1 {sub(/.*:/, "", $2); printf "%s ", $2}' /proc/net/tcp /proc/net/tcp6 2>/dev/null)"
  for ((tries = 0; tries < 100; tries++)); do
    first=$((12000 + SRANDOM % 990 * 8))
    for ((port = first; port < first + $1; port++)); do
      [[ $taken != *" $(printf '%04X' "$port") "* ]] || continue 2
    done
    echo "$first"
    return
  done
  say "no $1 free ports in a row between 12000 and 20000"
  return 1
}

# write_conf LINE... writes slurm.conf, gres.conf and slurmdbd.conf.
# A LINE replaces the default with the same key; PartitionName=x as a whole is a key.
write_conf() {
  local host user port
  host=$(uname -n) host=${host%%.*} user=$(id -un) port=$(free_ports 6)
  slurm_conf "$host" "$user" "$port" | override "$@" >"$home/etc/slurm.conf"
  gres_conf >"$home/etc/gres.conf"
  # From 23.11 on slurmd loads a cgroup plugin although nothing here is confined; 22.05 refuses the word.
  [[ $(slurmd -V) < "slurm-wlm 23" ]] || echo "CgroupPlugin=disabled" >"$home/etc/cgroup.conf"
  (umask 077 && slurmdbd_conf "$host" "$user" "$port" >"$home/etc/slurmdbd.conf")
}

override() {
  local line keys=""
  for line; do
    case $line in
      PartitionName=* | NodeName=*) keys+=" ${line%% *} " ;;
      *) keys+=" ${line%%=*}= " ;;
    esac
  done
  KEYS=${keys,,} awk '{
    key = tolower($1)
    if (key !~ /^(partitionname|nodename)=/) sub(/=.*/, "=", key)
    if (index(ENVIRON["KEYS"], " " key " ") == 0) print
  }'
  (($# == 0)) || printf '%s\n' "$@"
}

# cred_expire: a requeued job is held until the credential of its last start has expired; 5 s is the
# minimum of Slurm, 120 s the default.
# AccountingStoragePass: without it slurmdbd is reached through the munge of the host, if there is one.
# FirstJobId: run folders are named after job ids, and two clusters must not share one.
# gpu and preempt share a tier and only jobs in preempt can be preempted, so only high preempts.
slurm_conf() {
  cat <<END
ClusterName=onemachine
${plugins:+PluginDir=$plugins}
SlurmctldHost=$1(127.0.0.1)
SlurmctldPort=$3
SlurmUser=$2
SlurmdUser=$2
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$home/run/munge.sock,cred_expire=5
StateSaveLocation=$home/state
SlurmdSpoolDir=$home/spool/%n
SlurmctldPidFile=$home/run/slurmctld.pid
SlurmdPidFile=$home/run/%n.pid
SlurmctldLogFile=$home/log/slurmctld.log
SlurmdLogFile=$home/log/%n.log
FirstJobId=$((1000 + SRANDOM % 60000000))
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
KillWait=5
MessageTimeout=30
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=2,bf_interval=2,sched_min_interval=0,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$(($3 + 1))
AccountingStoragePass=$home/run/munge.sock
AccountingStorageEnforce=limits
AccountingStorageTRES=gres/gpu,gres/gpu:a40,gres/gpu:a100
JobAcctGatherType=jobacct_gather/linux
SlurmdParameters=config_overrides
GresTypes=gpu
DefMemPerCPU=4000
NodeName=DEFAULT CPUs=32 CoresPerSocket=32 RealMemory=256000
NodeName=a40-1 NodeHostname=$1 NodeAddr=127.0.0.1 Port=$(($3 + 2)) Gres=gpu:a40:2 Feature=a40
NodeName=a40-2 NodeHostname=$1 NodeAddr=127.0.0.1 Port=$(($3 + 3)) Gres=gpu:a40:2 Feature=a40
NodeName=a100-1 NodeHostname=$1 NodeAddr=127.0.0.1 Port=$(($3 + 4)) Gres=gpu:a100:2 Feature=a100
NodeName=a100-2 NodeHostname=$1 NodeAddr=127.0.0.1 Port=$(($3 + 5)) Gres=gpu:a100:2 Feature=a100
PartitionName=gpu Nodes=ALL Default=YES MaxTime=2-00:00:00 DefaultTime=01:00:00 PreemptMode=OFF
PartitionName=debug Nodes=ALL MaxTime=00:05:00 PreemptMode=OFF
PartitionName=preempt Nodes=ALL MaxTime=2-00:00:00 DefaultTime=01:00:00 PriorityTier=1 GraceTime=10
PartitionName=high Nodes=ALL MaxTime=2-00:00:00 DefaultTime=01:00:00 PriorityTier=10 PreemptMode=OFF
END
}

# With ordinary files as File= CUDA_VISIBLE_DEVICES is empty; these two devices also exist in containers.
gres_conf() {
  cat <<END
NodeName=a40-[1-2] Name=gpu Type=a40 File=/dev/null
NodeName=a40-[1-2] Name=gpu Type=a40 File=/dev/zero
NodeName=a100-[1-2] Name=gpu Type=a100 File=/dev/null
NodeName=a100-[1-2] Name=gpu Type=a100 File=/dev/zero
END
}

slurmdbd_conf() {
  cat <<END
${plugins:+PluginDir=$plugins}
DbdHost=$1
DbdAddr=127.0.0.1
DbdPort=$(($3 + 1))
SlurmUser=$2
AuthType=auth/munge
AuthInfo=socket=$home/run/munge.sock
PidFile=$home/run/slurmdbd.pid
LogFile=$home/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=$2
StorageLoc=slurm_acct
END
}
