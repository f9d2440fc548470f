#!/bin/sh
# Sets up `make demo`, `make test` or `make bench`: system packages, .venv, the native part. It prints each step, and does
# only missing ones: a second run takes a fraction of a second.
# usage: setup.sh demo|test|bench
set -eu
cd "$(dirname "$0")/.."
purpose=${1:-}
case $purpose in
    demo) purposes=demo ;;
    test) purposes='demo|test' ;;
    bench) purposes='demo|bench' ;;
    *) echo "usage: $0 demo|test|bench" >&2; exit 2 ;;
esac

say() { printf '» %s\n' "$*"; }
fail() { printf '%s: %s\n' "$0" "$*" >&2; exit 1; }

wanted=$(sed -nE "s/^($purposes) +([^ #]+).*/\2/p" scripts/packages.apt scripts/packages-bench.apt)

# Of each entry a|b|c, one package must be installed. Prints the entries of which none is.
missing_packages() {
    # shellcheck disable=SC2046 # one word per package is meant
    installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' $(echo "$wanted" | tr '|' ' ') 2>/dev/null |
        sed -n 's/ installed$//p' | tr '\n' ' ')
    for entry in $wanted; do
        for package in $(echo "$entry" | tr '|' ' '); do
            case " $installed" in *" $package "*) continue 2 ;; esac
        done
        echo "$entry"
    done
}

# The first package of a|b|c that the package sources have.
available() {
    for package in $(echo "$1" | tr '|' ' '); do
        if apt-cache policy "$package" | grep -q 'Candidate: [^(]'; then echo "$package"; return; fi
    done
    hint='see /etc/apt/sources.list.d'
    if grep -q '^ID=ubuntu' /etc/os-release && ! apt-cache policy | grep -q '/universe '; then
        hint='enable universe: sudo add-apt-repository universe, or add it to the Components of /etc/apt/sources.list.d'
    fi
    fail "no package of $1 in the package sources: $hint"
}

install_packages() {
    as_root=
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || fail "packages are missing ($(echo $missing)): install them, or run this as root"
        as_root=sudo
    fi
    say "apt-get update"
    $as_root apt-get update -qq
    packages=
    for entry in $missing; do packages="$packages $(available "$entry")"; done
    say "apt-get install$packages"
    # shellcheck disable=SC2086
    $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 $packages >/dev/null
}

if command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; then
    missing=$(missing_packages)
    [ -z "$missing" ] || install_packages
elif [ ! -e .venv/.stamp-demo ]; then
    say "no apt here; these Debian packages, or what corresponds to them, are expected: $(echo $wanted)"
fi

# Distributions build the perf binding for their own Python, so .venv gets that one if it is new enough.
find_python() {
    for python in /usr/bin/python3 /usr/bin/python3.1[1-9] python3; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    fail "no Python 3.11 or newer: install one"
}

# .venv depends on its path (its scripts have it), on the interpreter, and on what the project requires.
state() { pwd; .venv/bin/python -V; cksum pyproject.toml setup.py scripts/setup.sh; }
is_current() { [ -e ".venv/.stamp-$1" ] && state | cmp -s - ".venv/.stamp-$1"; }

if [ -e .venv/.path ] && [ "$(cat .venv/.path)" != "$(pwd)" ]; then
    say "rm -r .venv (made for $(cat .venv/.path))"
    rm -r .venv
fi
if ! .venv/bin/python -c '' 2>/dev/null; then
    python=$(find_python)
    say "$python -m venv .venv"
    "$python" -m venv --clear .venv
fi
# setuptools warns at length about editable installations. Python compiles what is imported, which is less than all.
pip() { PYTHONWARNINGS=ignore .venv/bin/python -m pip --disable-pip-version-check install -q --no-compile "$@"; }
if ! is_current test && ! is_current "$purpose"; then
    pwd >.venv/.path
    say "pip install into .venv: what building needs"
    pip --upgrade 'pip>=25.1' 'setuptools>=77' 'cffi>=1.16'
    if [ "$purpose" = test ]; then
        if [ "$(uname -m)" = x86_64 ]; then
            say "pip install into .venv: otf2, which tests read traces with"
            .venv/bin/python scripts/install_otf2.py >/dev/null
        else
            say "pip compiles otf2, which tests read traces with: it has no wheel for $(uname -m). This takes minutes"
            export MAKEFLAGS="-j$(nproc)"
        fi
        say "pip install into .venv: lo2io (compiling it), what it, its tests and lint need"
        pip --no-build-isolation --group lint --group test -e .
        pip --no-deps 'darshan>=3.4' # a quarter of what it requires serves its plots alone
    else
        say "pip install into .venv: lo2io (compiling it) and what it needs"
        pip --no-build-isolation -e .
    fi
    touch .venv/.built
    state >".venv/.stamp-$purpose"
fi
if [ ! -e lo2io/native/_lib.abi3.so ] || [ -n "$(find lo2io/native lo2io/bpf/programs \
    \( -name '*.[ch]' ! -name _lib.c -o -name build.py \) -newer .venv/.built)" ]; then
    say "compiling lo2io/native and lo2io/bpf/programs"
    touch .venv/.building
    pip --no-deps --no-build-isolation -e .
    mv .venv/.building .venv/.built
fi
