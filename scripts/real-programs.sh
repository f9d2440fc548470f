#!/bin/sh
# Runs programs that people use under strace and lo2io at once, and prints a table of what the two disagree on.
# By hand, as root, on Debian or Ubuntu: it installs the programs.
# usage: scripts/real-programs.sh [NAME…]
set -eu
cd "$(dirname "$0")/.."
scripts/setup.sh test
packages='sqlite3 make zstd git golang-go nodejs default-jdk-headless redis-server postgresql mariadb-server rocksdb-tools sudo fio strace'
# Databases start their services when they are installed, unless this forbids it.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
fi
echo "» apt-get install $packages"
# shellcheck disable=SC2086 # one word per package is meant
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >/dev/null
folder=.cache/real-programs
rm -rf "$folder"
mkdir -p "$folder"
.venv/bin/python tests/workloads/real_programs.py "$folder" "$@"
