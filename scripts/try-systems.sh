#!/bin/sh
# Tries lo2io on bare systems, as root: what README says, the wheel, the Debian package.
# usage: [PARTS="demo test package wheel"] try-systems.sh [bookworm|trixie|noble]…
#
# demo     make demo, twice
# test     make test; `unit` in its place: only lint and unit tests, which need no rights of the kernel
# package  the Debian package: built, installed in another bare copy, used, removed
# wheel    the wheel by pipx and by uv, used from any folder
#
# Prints a line for each step, with its seconds. What the steps print is in .cache/systems/SUITE.log. The wheel must be
# in dist/ (`python scripts/wheels.py build`). The checked-out commit is tried, without uncommitted changes. debootstrap
# makes the systems in .cache/systems, from the distributions' own servers; they take some GB until `make clean`.
# noble tries an Ubuntu with main only, too. It needs Ubuntu's keys: Debian's package ubuntu-keyring, or KEYRING=FILE.
set -eu
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "$0: debootstrap and chroot want root" >&2; exit 1; }
command -v debootstrap >/dev/null || { echo "$0: no debootstrap: apt-get install debootstrap" >&2; exit 1; }
wheel=$(echo dist/lo2io-*_"$(uname -m)".whl)
[ -f "$wheel" ] || { echo "$0: no wheel in dist/: python scripts/wheels.py build" >&2; exit 1; }
# In a mount namespace of its own, so that nobody else sees the mounts, and none remains.
[ "${TRY_SYSTEMS_INSIDE:-}" ] || exec env TRY_SYSTEMS_INSIDE=1 unshare --mount scripts/try-systems.sh "$@"

systems=$(pwd)/.cache/systems
keyring=${KEYRING:-/usr/share/keyrings/ubuntu-archive-keyring.gpg}
parts=" ${PARTS:-demo test package wheel} "
mkdir -p "$systems"
authorities=/etc/ssl/this-machine.crt # whom this machine trusts, which may include a proxy
failed=0
suite=
log=
root=

wants() { case $parts in *" $1 "*) ;; *) return 1 ;; esac }
tell() { printf '%-9s %-44s %6.1f s  %s\n' "$suite" "$1" "$2" "$3"; }
since() { date +%s.%N | awk -v began="$1" '{ print $1 - began }'; }

# A fresh copy of the bare system, with the kernel's file systems and the network's settings.
enter() {
    root=$systems/$1
    rm -rf --one-file-system "$root"
    cp -a "$systems/$suite.bare" "$root"
    for place in proc sys dev; do mount --rbind "/$place" "$root/$place"; done
    cp /etc/resolv.conf "$root/etc/"
    install -D -m 0644 /etc/ssl/certs/ca-certificates.crt "$root$authorities"
}

# Ends the use of a copy. It remains, to look at; a mounted file system is not in the way of the next copy.
leave() {
    for place in proc sys dev; do umount -l "$root/$place"; done
}

inside() {
    env -i PATH=/root/.local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        SSL_CERT_FILE="$authorities" PIP_CERT="$authorities" chroot "$root" sh -c "$1"
}

# step WHAT COMMAND: runs it in the copy, and tells how long that took.
step() {
    began=$(date +%s.%N)
    answer=ok
    printf '\n» %s: %s\n' "$1" "$2" >>"$log"
    inside "$2" >>"$log" 2>&1 </dev/null || { answer="FAILED ($?)"; failed=1; }
    tell "$1" "$(since "$began")" "$answer"
}

# A command, recorded and checked, from a folder that is not the repository.
use='cd /var/tmp && lo2io --version && lo2io record --force -o T -- dd if=/dev/zero of=f bs=64k count=100 conv=fsync &&
    lo2io report T >/dev/null && lo2io verify T'

make_bare() {
    [ ! -e "$systems/$suite.bare/.made" ] || return 0
    began=$(date +%s.%N)
    rm -rf --one-file-system "$systems/$suite.bare"
    if ! debootstrap --variant=minbase "$@" >>"$log" 2>&1; then
        tell "debootstrap" "$(since "$began")" "FAILED: the last lines of $log say why"
        failed=1
        return 1
    fi
    touch "$systems/$suite.bare/.made"
    tell "debootstrap" "$(since "$began")" ok
}

try_clone() {
    enter "$suite.clone"
    git clone -q . "$root/srv/lo2io"
    step "apt-get install make" 'apt-get update && apt-get install -y --no-install-recommends make'
    if wants demo; then
        step "make demo" 'make -C /srv/lo2io demo'
        step "make demo, once more" 'make -C /srv/lo2io demo'
        step "its set-up alone, once more" '/srv/lo2io/scripts/setup.sh demo'
    fi
    if wants test || wants unit; then step "make test, its set-up" '/srv/lo2io/scripts/setup.sh test'; fi
    if wants test; then step "make test" 'make -C /srv/lo2io test'; fi
    if wants unit; then step "lint and unit tests" 'make -C /srv/lo2io run-lint run-unit'; fi
    if wants package; then
        install -D -t "$root/srv/lo2io/dist" "$wheel"
        step "the Debian package, from the wheel" '/srv/lo2io/scripts/setup.sh demo && /srv/lo2io/scripts/deb.sh'
        rm -f "$systems/$suite.deb"
        cp "$root"/srv/lo2io/dist/lo2io_*.deb "$systems/$suite.deb" || failed=1
    fi
    leave
}

try_package() {
    [ -f "$systems/$suite.deb" ] || return 0
    enter "$suite.package"
    cp "$systems/$suite.deb" "$root/srv/lo2io.deb"
    step "apt-get install ./lo2io.deb" 'apt-get update && apt-get install -y /srv/lo2io.deb'
    step "lo2io of the package records" "$use"
    step "files as the package brought them" 'test -z "$(dpkg --verify lo2io)"'
    step "apt-get remove leaves nothing" 'apt-get remove -y lo2io && ! [ -e /opt/lo2io ] && ! [ -e /usr/bin/lo2io ]'
    leave
}

try_wheel() {
    enter "$suite.wheel"
    install -D -t "$root/srv" "$wheel"
    step "apt-get install pipx" 'apt-get update && apt-get install -y --no-install-recommends pipx python3-venv'
    step "pipx install the wheel" 'pipx install /srv/lo2io-*.whl'
    step "lo2io of pipx records, from any folder" "$use"
    step "pipx uninstall" 'pipx uninstall lo2io && ! command -v lo2io'
    step "pipx install uv" 'pipx install uv'
    step "uv tool install the wheel" 'uv tool install --python /usr/bin/python3 /srv/lo2io-*.whl'
    step "lo2io of uv records, from any folder" "$use"
    leave
}

# Ubuntu's own archive has packages that lo2io needs in `universe`, which not all have enabled.
try_main_only() {
    enter "$suite.main"
    sed -i 's/ universe//' "$root/etc/apt/sources.list"
    git clone -q . "$root/srv/lo2io"
    step "with main only, the remedy is named" 'apt-get update && /srv/lo2io/scripts/setup.sh demo 2>&1 | grep "enable universe"'
    leave
}

for suite in ${*:-bookworm trixie noble}; do
    log=$systems/$suite.log
    : >"$log"
    case $suite in
        noble) # by the script of all Ubuntus: an older debootstrap knows no noble
            make_bare --components=main,universe --keyring="$keyring" --force-check-gpg \
                "$suite" "$systems/$suite.bare" http://archive.ubuntu.com/ubuntu /usr/share/debootstrap/scripts/gutsy ;;
        *) make_bare "$suite" "$systems/$suite.bare" http://deb.debian.org/debian ;;
    esac || continue
    if wants demo || wants test || wants unit || wants package; then try_clone; fi
    if wants package; then try_package; fi
    if wants wheel; then try_wheel; fi
    [ "$suite" != noble ] || try_main_only
done
exit $failed
