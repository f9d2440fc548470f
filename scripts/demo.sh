#!/bin/sh
# Records a real workload into demo-trace/, and shows the trace. `make demo` calls it after setup.sh.
set -eu
cd "$(dirname "$0")/.."
lo2io=.venv/bin/lo2io
say() { printf '\n» %s\n' "$*"; }

if ! diagnosis=$($lo2io doctor); then
    printf '%s\n' "$diagnosis" >&2
    exit 3
fi

# Not under /tmp, which may be in memory: the demo must reach a disk.
work=.cache/demo
rm -rf "$work"
mkdir -p "$work"
spinners=
trap 'kill $spinners 2>/dev/null; rm -rf "$work"' EXIT

# Some virtual machines deliver no event while a CPU idles (docs/how-to/losses.md). So each CPU gets something to do
# when there is nothing else, which needs no rights. Events that vanish while process 1 runs belong to other processes,
# as the report's last line says.
for cpu in $(seq 0 $(($(nproc --all) - 1))); do
    taskset -c "$cpu" chrt --idle 0 sh -c 'while kill -0 $PPID; do i=0; while [ $i -lt 9999 ]; do i=$((i + 1)); done; done' \
        2>/dev/null &
    spinners="$spinners $!"
done

say "lo2io record -o demo-trace -- scripts/demo-workload.sh"
$lo2io record --force --quiet -o demo-trace -- scripts/demo-workload.sh "$work"
say "lo2io report demo-trace"
$lo2io report demo-trace
say "lo2io report demo-trace --html demo-trace.html"
$lo2io report demo-trace --html demo-trace.html --force
say "lo2io verify demo-trace"
$lo2io verify demo-trace
if command -v otf2-print >/dev/null; then
    say "otf2-print demo-trace/traces.otf2, from the first write on"
    otf2-print demo-trace/traces.otf2 | grep -m 1 -A 12 -E '^IO_OPERATION_BEGIN.*WRITE' || true
fi
# A fault, its remedy, and what the remedy brought: the same bytes, synced one by one, and then together.
say "lo2io record -o demo-before -- dd … bs=4k count=400 oflag=dsync"
$lo2io record --force --quiet -o demo-before -- dd if=/dev/zero of="$work/log" bs=4k count=400 oflag=dsync status=none
$lo2io report demo-before | sed -n '/^Findings$/,/^$/p'
say "lo2io record -o demo-after -- dd … bs=4k count=400 conv=fsync"
$lo2io record --force --quiet -o demo-after -- dd if=/dev/zero of="$work/log" bs=4k count=400 conv=fsync status=none
say "lo2io diff demo-before demo-after"
$lo2io diff demo-before demo-after
say "The trace is $(pwd)/demo-trace: open traces.otf2 with Vampir, tables in lo2io/ with anything that reads Arrow; demo-trace.html with a browser."
