#!/bin/sh
# Builds dist/lo2io_VERSION_ARCHITECTURE.deb from the wheel in dist/: an environment under /opt/lo2io with all that lo2io
# requires, /usr/bin/lo2io, manual pages, completion, the flight recorder's unit. `make deb` calls this.
# The package is for the distribution on which it is built: it needs the Python of that version.
set -eu
cd "$(dirname "$0")/.."
say() { printf '» %s\n' "$*"; }

python=/usr/bin/python3
wheel=$(echo dist/lo2io-*_"$(uname -m)".whl)
[ -f "$wheel" ] || { echo "$0: no wheel in dist/: python scripts/wheels.py build" >&2; exit 1; }
version=$(basename "$wheel" | cut -d- -f2)
architecture=$(dpkg --print-architecture)
minor=$($python -c 'import sys; print(sys.version_info.minor)')
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
tree=$stage/tree
home=$tree/opt/lo2io

say "pip install $wheel into an environment"
$python -m venv "$home"
PYTHONWARNINGS=ignore "$home/bin/python" -m pip --disable-pip-version-check install -q --no-compile "$wheel"
"$home/bin/python" -m pip --disable-pip-version-check uninstall -q -y pip setuptools 2>/dev/null || true
rm -rf "$home"/bin/[aA]ctivate* "$home"/include "$home"/lib/python3.*/site-packages/pyarrow/tests
rm -f "$home"/lib/python3.*/site-packages/lo2io-*.dist-info/direct_url.json # tells where the wheel lay
find "$home" -name __pycache__ -type d -prune -exec rm -r {} +
# The environment moves: programs name its Python by its final place, as compiled modules name their sources.
grep -lIr "^#!$home/bin/python" "$home/bin" | xargs sed -i "1s|^#!$home|#!/opt/lo2io|"
sed -i "s|$tree||" "$home/pyvenv.cfg"
$python -m compileall -q -j 0 -s "$tree" "$home/lib" || true # some packages bring modules for later Pythons

say "manual pages, completion, unit"
share=$tree/usr/share
mkdir -p "$tree/usr/bin" "$share/man" "$share/doc/lo2io/examples" "$tree/usr/lib/systemd/system" \
    "$share/bash-completion/completions" "$share/zsh/vendor-completions" "$share/fish/vendor_completions.d"
ln -s /opt/lo2io/bin/lo2io "$tree/usr/bin/lo2io"
mv "$home/share/man/man1" "$share/man/"
gzip -9n "$share"/man/man1/*.1
# It exits with 1, also when all went well.
complete() { _LO2IO_COMPLETE=source_$1 "$home/bin/python" "$home/bin/lo2io" >"$2" || [ -s "$2" ]; }
complete bash "$share/bash-completion/completions/lo2io"
complete zsh "$share/zsh/vendor-completions/_lo2io"
complete fish "$share/fish/vendor_completions.d/lo2io.fish"
cp packaging/lo2io-flight.service "$tree/usr/lib/systemd/system/"
cp packaging/sudoers "$share/doc/lo2io/examples/"
cat LICENSE lo2io/reports/html/assets/plotly/LICENSE >"$share/doc/lo2io/copyright"
cp CHANGELOG.md "$share/doc/lo2io/"

mkdir "$tree/DEBIAN"
# dpkg removes what the package brought. Python may have compiled some of it once more, and the unit may be on.
cat >"$tree/DEBIAN/prerm" <<'END'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl disable --now lo2io-flight.service || true
fi
find /opt/lo2io -name __pycache__ -type d -prune -exec rm -r {} +
END
chmod 0755 "$tree/DEBIAN/prerm"
(cd "$tree" && find opt usr -type f -print0 | sort -z | xargs -0 md5sum) >"$stage/md5sums"
mv "$stage/md5sums" "$tree/DEBIAN/"
cat >"$tree/DEBIAN/control" <<END
Package: lo2io
Version: $version
Architecture: $architecture
Maintainer: the authors of lo2io <lo2io@localhost>
Installed-Size: $(du -sk --apparent-size "$tree" | cut -f1)
Depends: python3 (>= 3.$minor), python3 (<< 3.$((minor + 1)))
Recommends: libbpf1, linux-perf | linux-tools-generic, otf2-tools
Suggests: fio
Section: utils
Priority: optional
Description: system-wide tracer of storage I/O
 lo2io records the system calls on files, the requests of io_uring and the block
 requests of a program or of a whole machine. It proves whether any is missing,
 and says what made them slow. The result is an OTF2 trace.
END
chmod -R go=u,go-w "$tree"
say "dpkg-deb --build" # by zstd: xz takes twenty times as long, for a package 14 % smaller
dpkg-deb --root-owner-group -Zzstd -z6 --build "$tree" "dist/lo2io_${version}_$architecture.deb"
