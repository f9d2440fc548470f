#!/bin/sh
# Sets up all that `make demo` and `make test` need; says what it does, does only what is missing.
# usage: setup.sh demo|test
set -eu
cd "$(dirname "$0")/.."
purpose=${1:?demo or test}
say() { printf '» %s\n' "$*"; }

wanted() {
    sed -n 's/ *#.*//; /./p' scripts/packages.apt
    [ "$purpose" = test ] || true
}

installed() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }

missing=
for entry in $(wanted); do
    found=
    for package in $(echo "$entry" | tr '|' ' '); do
        if installed "$package"; then found=1; break; fi
    done
    [ -n "$found" ] || missing="$missing $entry"
done
if [ -n "$missing" ]; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "missing packages:$missing (install them, or run this as root on Debian or Ubuntu)" >&2
        exit 1
    fi
    say "apt-get update"
    apt-get update -qq
    for entry in $missing; do
        for package in $(echo "$entry" | tr '|' ' '); do
            if apt-cache show "$package" >/dev/null 2>&1; then
                say "apt-get install $package"
                DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null
                break
            fi
        done
    done
fi

# The perf binding is built for the distribution's Python, so the environment is that Python's.
python=/usr/bin/python3
if [ ! -x .venv/bin/python ]; then
    say "$python -m venv .venv"
    "$python" -m venv .venv
    .venv/bin/python -m pip install -q --upgrade pip 'setuptools>=77' 'cffi>=1.16'
fi
stamp=.venv/.installed-$purpose
if [ ! -e "$stamp" ] || [ pyproject.toml -nt "$stamp" ]; then
    say "pip install lo2io and what it needs ($purpose)"
    groups="--group lint --group test"
    [ "$purpose" = test ] || groups=
    # shellcheck disable=SC2086
    .venv/bin/python -m pip install -q $groups -e . --no-build-isolation
    touch "$stamp" .venv/.built
fi
if [ -n "$(find lo2io/_native -name '*.[ch]' -newer .venv/.built -o -path 'lo2io/_native/build.py' -newer .venv/.built)" ]; then
    say "compiling lo2io/_native"
    .venv/bin/python -m pip install -q --no-deps --no-build-isolation -e .
    touch .venv/.built
fi
