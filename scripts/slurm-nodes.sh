#!/bin/sh
# Runs a command under Slurm with several nodes on this one machine: as root, with Debian's packages slurmctld, slurmd,
# slurm-client and munge. Everything lies in a temporary folder, and ends with the command.
# usage: slurm-nodes.sh NODES CPUS COMMAND…        e.g. slurm-nodes.sh 2 4 srun -N2 -n4 lo2io record -o T -- ./app
set -eu
PATH=$PATH:/usr/sbin
nodes=$1 cpus=$2
shift 2
place=$(mktemp -d /tmp/lo2io-slurm.XXXXXX)
chmod 755 "$place"
started=
finish() {
    status=$?
    [ ! -S "$place/munge/socket" ] || timeout 10 sh -c '
        scancel --full --signal=KILL --partition=all
        while squeue -h | grep -q .; do sleep 0.1; done' || true
    # shellcheck disable=SC2086 # several pids
    [ -z "$started" ] || kill $started 2>/dev/null || true
    wait
    rm -rf "$place"
    exit $status
}
trap finish EXIT
trap 'exit 130' INT TERM
begin() { # NAME COMMAND…: a daemon, whose messages go to NAME.log
    log=$place/$1.log
    shift
    "$@" >"$log" 2>&1 &
    started="$! $started"
}

mkdir "$place/munge" "$place/state"
chmod 700 "$place/munge"
dd if=/dev/urandom of="$place/munge/key" bs=1024 count=1 status=none
chmod 600 "$place/munge/key"
host=$(hostname)
port=$((20000 + $$ % 12000)) # and as many above it as there are nodes
cat >"$place/slurm.conf" <<CONF
ClusterName=lo2io
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmctldPort=$port
AuthType=auth/munge
AuthInfo=socket=$place/munge/socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/builtin
SelectType=select/linear
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=120
MailProg=/bin/true
StateSaveLocation=$place/state
SlurmctldPidFile=$place/slurmctld.pid
SlurmdSpoolDir=$place/spool-%n
SlurmdPidFile=$place/slurmd-%n.pid
NodeName=n[1-$nodes] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + nodes))] CPUs=$cpus State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF="$place/slurm.conf"

begin munged munged --foreground --force --key-file="$place/munge/key" --socket="$place/munge/socket" \
    --pid-file="$place/munge/pid" --log-file="$place/munge/log" --seed-file="$place/munge/seed"
until [ -S "$place/munge/socket" ]; do
    kill -0 "${started% }" || { cat "$place"/*.log >&2; echo "slurm-nodes.sh: munged did not start" >&2; exit 1; }
    sleep 0.05
done
begin slurmctld slurmctld -i -D
node=1
while [ $node -le "$nodes" ]; do
    mkdir "$place/spool-n$node"
    begin "slurmd-n$node" slurmd -D -N "n$node"
    node=$((node + 1))
done
tries=0
until [ "$(sinfo -h -o %D -t idle 2>/dev/null)" = "$nodes" ]; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || { cat "$place"/*.log >&2; echo "slurm-nodes.sh: the nodes did not come up" >&2; exit 1; }
    sleep 0.1
done
"$@"
