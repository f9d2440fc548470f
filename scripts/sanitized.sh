#!/bin/sh
# Builds the native part once more, with AddressSanitizer and UndefinedBehaviorSanitizer, in .cache/sanitized, and runs a
# command with it. It compiles only after a change.
# usage: sanitized.sh COMMAND [ARGUMENT...]
set -eu
cd "$(dirname "$0")/.."
python=$PWD/.venv/bin/python
place=$PWD/.cache/sanitized
if [ ! -e "$place/.built" ] || [ -n "$(find lo2io tracepoints -newer "$place/.built" \
    \( -name '*.[ch]' -o -name '*.py' -o -name '*.toml' \) ! -name _lib.c -print -quit)" ]; then
    rm -rf "$place"
    mkdir -p "$place"
    tar -c --exclude '*.so' --exclude __pycache__ lo2io tracepoints | tar -x -C "$place"
    cd "$place"
    "$python" -c "import runpy; runpy.run_path('lo2io/native/build.py')['ffibuilder'].emit_c_code('lo2io/native/_lib.c')" >&2
    includes="-Ilo2io/native -Ilo2io -I$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')"
    find lo2io/native -name '*.c' | xargs -P "$(nproc)" -I{} gcc -c -fPIC -O1 -g -std=gnu11 -DPy_LIMITED_API \
        -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer $includes {} -o {}.o
    find lo2io/native -name '*.c.o' -exec gcc -shared -fsanitize=address,undefined -o lo2io/native/_lib.abi3.so {} +
    touch .built
    cd - >/dev/null
fi
# A greater request gets no memory, as with `ulimit -v`: lo2io then says so in one line.
bound=max_allocation_size_mb=3072:allocator_may_return_null=1:hard_rss_limit_mb=3072
export ASAN_OPTIONS="detect_leaks=0:abort_on_error=1:detect_odr_violation=0:$bound"
export UBSAN_OPTIONS=print_stacktrace=1:abort_on_error=1
export PYTHONPATH="$place"
LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" exec "$@"
