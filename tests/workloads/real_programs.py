"""Common programs, each run under a second witness: a row of a table for each.

``real_programs.py FOLDER [NAME…]`` runs the programs (without NAME, all that are installed) under strace, which runs
under lo2io. Calls and results must be equal thread by thread, and so must names of files. If the program itself counts
its asynchronous requests, lo2io's number must be the same. liburing's tests run if FOLDER/liburing has its built
source; ``perf stat`` counts their requests. ``scripts/real-programs.sh`` installs all that is needed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from lo2io.kernel import tracefs
from lo2io.trace.reader import open_trace
from workloads.as_strace import compare, strace
from workloads.names import Names
from workloads.record import LO2IO, Recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
TREE = "mkdir tree && for i in $(seq 99); do seq $i >tree/$i; done"
SOURCES = (
    'for i in 1 2 3 4 5 6; do echo "int f$i(void) { return $i; }" >f$i.c; done; '
    'echo "int main(void) { return 0; }" >main.c; '
    'printf "all: main\\nmain: main.o f1.o f2.o f3.o f4.o f5.o f6.o\\n\\tgcc -o \\$@ \\$^\\n" >Makefile'
)
ROWS = "with recursive n(x) as (select 1 union all select x + 1 from n where x < 999) insert into t select x from n;"
FOR_OTHERS = "chmod 755 . .."
"""Another user is to find the program's folder."""


@dataclass(frozen=True)
class Program:
    """A program, run by a shell in an empty folder.

    Attributes:
        needs: The command whose presence shows that it is installed.
        prepare: Not recorded.
        run: Recorded.
        events: The events that lo2io records.
        requests: The number of asynchronous requests by the program's own account, from the folder of its run.
    """

    needs: str
    prepare: str
    run: str
    events: str = "syscalls"
    requests: Callable[[Path], int] | None = None


@dataclass
class Verdict:
    """A row of the table.

    Attributes:
        oracle: The witness with which lo2io is compared.
        threads: How many threads, or programs, were compared.
        compared: How many calls or requests.
        differences: Calls that only one of both has.
        opens: How many opens succeeded; None: names are not compared.
        named: How many of them have the same name.
        wrong: Names that differ.
    """

    oracle: str
    threads: int
    compared: int
    differences: list[str] = field(default_factory=list)
    opens: int | None = None
    named: int | None = None
    wrong: list[str] = field(default_factory=list)


def fio_requests(work: Path) -> int:
    """Reads and writes in fio's counts, of all its jobs."""
    jobs = json.loads((work / "out").read_text())["jobs"]
    return sum(job[kind]["total_ios"] for job in jobs for kind in ("read", "write"))


def _fio(engine: str) -> Program:
    run = (
        f"fio --name=j --filename=f --size=1m --bs=4k --rw=randrw --ioengine={engine} --thread --numjobs=2 --iodepth=4"
    )
    asynchronous = engine in {"libaio", "io_uring"}
    return Program(
        "fio",
        "true",
        f"{run} --output-format=json --output=out",
        "syscalls,io_uring" if engine == "io_uring" else "syscalls",
        fio_requests if asynchronous else None,
    )


POSTGRES = "setpriv --reuid=postgres --regid=postgres --clear-groups"
NOBODY = "setpriv --reuid nobody --regid nogroup --clear-groups env"
PROGRAMS = {
    "dd, cat": Program(
        "dd", "true", "dd if=/dev/zero of=out bs=4k count=23 conv=fsync status=none; cat out out absent >all 2>&1; true"
    ),
    "sqlite": Program("sqlite3", "true", f"sqlite3 db 'pragma journal_mode = wal; create table t (x); {ROWS}'"),
    "make -j2": Program("make", SOURCES, "make -s -j2"),
    "tar | zstd": Program("zstd", TREE, "tar -c tree | zstd -q -o a.zst && mkdir b && zstd -dcq a.zst | tar -x -C b"),
    "git": Program("git", f"{TREE} && git init -q o && cp -r tree o", "cd o && git add . && git status >/dev/null"),
    "Python threads": Program(
        "python3",
        "true",
        '/usr/bin/python3 -S -c \'import threading as t; run = lambda i: open(str(i), "w").write("x" * 9); '
        "l = [t.Thread(target=run, args=(i,)) for i in range(17)]; [x.start() for x in l]; [x.join() for x in l]'",
    ),
    "static musl": Program(
        "musl-gcc",
        f"mkdir w && head -c 64 /dev/zero >in && musl-gcc -static -pthread -O1 -o calls {HERE}/calls*.c",
        "./calls w log <in",
    ),
    "32-bit": Program(
        "gcc",
        f"truncate -s 16M disk && gcc -m32 -nostdlib -static -fno-stack-protector -fno-pie -no-pie -fcf-protection=none"
        f" -O1 -o compat {HERE}/compat.c",
        "./compat file disk",
    ),
    "set-uid": Program(
        "gcc",
        f"{FOR_OTHERS} && gcc -o set-uid {HERE}/rights.c && cp set-uid set-gid && cp set-uid set-root && "
        "chown nobody set-uid && chgrp nogroup set-gid && chmod 4755 set-uid set-root && chmod 2755 set-gid",
        f"./set-uid /bin/dd && ./set-gid /bin/dd && {NOBODY} ./set-root /bin/dd",
    ),
    "sudo": Program("sudo", TREE, "sudo -u nobody sh -c 'cat tree/* | wc -c; dd if=/dev/zero of=/dev/null count=9'"),
    "Go": Program(
        "go",
        'printf "package main\\nfunc main() { println(1) }\\n" >a.go',
        "HOME=$PWD GOCACHE=$PWD/c GO111MODULE=off go build a.go",
    ),
    "Node": Program(
        "node",
        "true",
        'node -e \'const f = require("fs"); for (let i = 0; i < 50; i++) f.writeFile("f" + i, "x", () => 0)\'',
    ),
    "Java": Program(
        "javac",
        'printf "class A { public static void main(String[] a) throws Exception '
        '{ java.nio.file.Files.write(java.nio.file.Path.of(\\"o\\"), new byte[9]); } }" >A.java && javac A.java',
        "java -cp . A",
    ),
    "redis": Program(
        "redis-server",
        "true",
        "redis-server --port 0 --unixsocket $PWD/s --appendonly yes --dir $PWD >log & "
        "until redis-cli -s s ping; do sleep 0.1; done >/dev/null 2>&1; "
        "redis-benchmark -s s -n 500 -t set,get -q >/dev/null; redis-cli -s s shutdown; wait",
    ),
    "PostgreSQL": Program(
        "pg_ctlcluster",
        f"chown postgres . && {FOR_OTHERS}",
        f"PATH=$(echo /usr/lib/postgresql/*/bin):$PATH; {POSTGRES} initdb -D d >log && "
        f"{POSTGRES} pg_ctl -s -w -D d -l d/log -o \"-k $PWD -c listen_addresses=''\" start && "
        f"{POSTGRES} pgbench -q -i -h $PWD postgres && {POSTGRES} pgbench -h $PWD -c 2 -t 50 postgres >out; "
        f"{POSTGRES} pg_ctl -s -D d stop",
    ),
    "MariaDB": Program(
        "mariadbd",
        f"chown mysql . && {FOR_OTHERS} && mariadb-install-db --user=mysql --datadir=$PWD/d >/dev/null 2>&1",
        "mariadbd --user=mysql --datadir=$PWD/d --socket=$PWD/s --skip-networking --pid-file=$PWD/p 2>log & "
        "until mariadb-admin -S $PWD/s ping; do sleep 0.2; done >/dev/null 2>&1; "
        "mariadb-slap -S $PWD/s -a --number-of-queries=200 -c 2 >out; mariadb-admin -S $PWD/s shutdown; wait",
    ),
    "RocksDB": Program(
        "ldb",
        "true",
        "for i in 1 2 3; do ldb --db=d --create_if_missing put k$i v; done && ldb --db=d compact",
    ),
    **{
        f"fio {engine}": _fio(engine)
        for engine in ("sync", "psync", "vsync", "pvsync2", "posixaio", "libaio", "io_uring", "mmap", "splice")
    },
}
LIBURING = "liburing"
"""Its tests."""
SECONDS = 60
"""Some of liburing's tests wait for what this kernel does not do."""


def prepare(program: Program, work: Path) -> None:
    """Make the program's folder, with the files that it needs."""
    work.mkdir(parents=True)
    subprocess.run(["sh", "-c", program.prepare], cwd=work, check=True)


def run(program: Program, folder: Path) -> Iterator[Verdict]:
    """Run a program in a new folder, and compare lo2io's account of it with others."""
    work, log = folder / "work", folder / "strace"
    try:
        prepare(program, work)
        command = [LO2IO, "record", "-q", "-o", folder / "T", "-e", program.events, "--"]
        command += [*strace(log), "sh", "-c", program.run]
        done = subprocess.run(command, cwd=work, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        recorded = Recorded(open_trace(folder / "T"), 0, done.stdout, done.stderr)
        assert recorded.trace.completeness.proven, done.stderr
        requests = program.requests(work) if program.requests else None
    finally:
        shutil.rmtree(work)  # some programs in there are set-uid
    found = compare(Names(recorded, []), log)
    yield Verdict("strace", found.threads, found.calls, found.differences, found.opens, found.named, found.wrong)
    if requests is not None:
        threads, mine = _requests(recorded)
        differences = [] if mine == requests else [f"lo2io has {mine} requests, the program {requests}"]
        yield Verdict("its own count", threads, requests, differences)


def _requests(recorded: Recorded) -> tuple[int, int]:
    """Threads that submitted requests of io_uring or libaio, and the number of requests."""
    rows = recorded.trace.ring_requests.to_pylist()
    return len({row["task"] for row in rows}), len(rows)


def run_liburing(folder: Path) -> Iterator[Verdict]:
    """Run each of liburing's tests, whatever its result, and count its requests: submitted and refused ones."""
    names = ("submit_req", "submit_sqe", "req_failed")  # the second is the first's name before Linux 6.4
    known = [f"io_uring:io_uring_{name}" for name in names]
    events = [event for event in known if tracefs.event_exists(tracefs.find_tracefs(), event)]
    verdict = Verdict("perf stat", 0, 0)
    for test in sorted((folder / "liburing/test").glob("*.t")):
        place = folder / "tests" / test.stem
        place.mkdir(parents=True)
        count = place / "count"
        command = [LO2IO, "record", "-q", "-o", place / "T", "-e", "io_uring", "--"]
        command += ["perf", "stat", "-x", ",", "-o", count, "-e", ",".join(events)]
        command += ["timeout", "-k", "9", str(SECONDS), test]
        done = subprocess.run(command, cwd=place, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        recorded = Recorded(open_trace(place / "T"), done.returncode, done.stdout, done.stderr)
        counted = sum(int(line.split(",")[0]) for line in count.read_text().splitlines() if "io_uring" in line)
        _, mine = _requests(recorded)
        verdict.threads += 1
        verdict.compared += counted
        if mine != counted:
            verdict.differences.append(f"{test.stem}: lo2io {mine}, perf stat {counted} requests")
    yield verdict


def show(name: str, verdict: Verdict) -> bool:
    """Print a row, and differences on stderr; returns whether there are any."""
    names = ["", "", ""] if verdict.opens is None else [verdict.opens, verdict.named, len(verdict.wrong)]
    cells = [verdict.oracle, verdict.threads, verdict.compared, len(verdict.differences), *names]
    print(
        "|",
        name.replace("|", r"\|"),
        "|",
        " | ".join(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells),
        "|",
        flush=True,
    )
    for line in (*verdict.differences[:9], *verdict.wrong[:9]):
        print(f"{name}: {line}", file=sys.stderr)
    return bool(verdict.differences or verdict.wrong)


def main() -> int:
    """Print the table; the exit code is 0 if all was equal."""
    folder, chosen = Path(sys.argv[1]).resolve(), sys.argv[2:] or [*PROGRAMS, LIBURING]
    print("| program | compared with | threads | calls or requests | differences | opens | named alike | wrong names |")
    print("|---|---|---|---|---|---|---|---|")
    failed = False
    for name in chosen:
        for verdict in _verdicts(name, folder):
            failed |= show(name, verdict)
    return int(failed)


def _verdicts(name: str, folder: Path) -> Iterator[Verdict]:
    if name == LIBURING:
        if (folder / "liburing").exists():
            yield from run_liburing(folder)
        else:
            print(f"{name}: not there", file=sys.stderr)
    elif shutil.which(PROGRAMS[name].needs):
        yield from run(PROGRAMS[name], folder / name.replace(" ", "-").replace("|", "to"))
    else:
        print(f"{name}: not installed", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
