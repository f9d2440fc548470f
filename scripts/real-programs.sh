#!/bin/sh
# Runs well-known programs under lo2io and a second witness, and prints a table of the differences between both.
# Run it by hand, as root, on Debian or Ubuntu: it installs the programs. docs/explanation/reliability.md explains it.
# usage: scripts/real-programs.sh [NAME…]
set -eu
cd "$(dirname "$0")/.."
scripts/setup.sh test
packages='sqlite3 make zstd git golang-go nodejs default-jdk-headless redis-server postgresql mariadb-server
    rocksdb-tools sudo fio strace musl-tools gcc linux-perf dpkg-dev'
# On installation, databases start their services unless this file forbids it.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi
echo "» apt-get install" $packages
# shellcheck disable=SC2086 # one word per package is meant
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >/dev/null
folder=$PWD/.cache/real-programs
rm -rf "$folder"
mkdir -p "$folder"

# apt-get source gets a configuration of its own, so that the machine's stays unchanged.
get_source() {
    mkdir -p lists/partial
    apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
        sort -ur >sources.list
    own="-o Dir::Etc::SourceList=$PWD/sources.list -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists=$PWD/lists"
    # shellcheck disable=SC2086 # three options
    { apt-get update -qq $own && apt-get source -qq $own "$1"; } >source.log 2>&1
}

build_liburing() {
    cd "$folder"
    echo "» apt-get source liburing"
    if ! get_source liburing; then
        echo "» without liburing's tests: apt has no source of them"
        tail -3 source.log
        return
    fi
    mv liburing-*/ liburing
    cd liburing
    echo "» make -C test (liburing)"
    { ./configure && make -C src && make -C test; } >../make.log 2>&1 || { tail ../make.log; exit 1; }
}

case " $* " in "  " | *" liburing "*) (build_liburing) ;; esac
echo "» without LTP: Debian has no package of it"
.venv/bin/python tests/workloads/real_programs.py "$folder" "$@"
