"""Programs that people use beside strace: one run, seen by both, and a row of a table for each.

``real_programs.py FOLDER [NAME…]`` runs the programs (all that are installed without NAME) under strace, which runs
under lo2io. Calls and results must be equal thread by thread, and so must names of files. ``scripts/real-programs.sh``
installs what they need.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from lo2io.trace.reader import open_trace
from workloads.named_programs import CALLS, Comparison, Row, compare_thread, read_log
from workloads.names import Names
from workloads.record import LO2IO, Recorded

if TYPE_CHECKING:
    from collections.abc import Sequence

TREE = "mkdir tree && for i in $(seq 99); do seq $i >tree/$i; done"
SOURCES = (
    'for i in 1 2 3 4 5 6; do echo "int f$i(void) { return $i; }" >f$i.c; done; '
    'echo "int main(void) { return 0; }" >main.c; '
    'printf "all: main\\nmain: main.o f1.o f2.o f3.o f4.o f5.o f6.o\\n\\tgcc -o \\$@ \\$^\\n" >Makefile'
)
ROWS = "with recursive n(x) as (select 1 union all select x + 1 from n where x < 999) insert into t select x from n;"


@dataclass(frozen=True)
class Program:
    """What is run, in an empty folder, by a shell.

    Attributes:
        needs: The command that says whether it is installed.
        prepare: Not recorded.
        run: Recorded.
    """

    needs: str
    prepare: str
    run: str


POSTGRES = "setpriv --reuid=postgres --regid=postgres --clear-groups"
PROGRAMS = {
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
        "chown postgres . && chmod 711 . ..",
        f"PATH=$(echo /usr/lib/postgresql/*/bin):$PATH; {POSTGRES} initdb -D d >log && "
        f"{POSTGRES} pg_ctl -s -w -D d -l d/log -o \"-k $PWD -c listen_addresses=''\" start && "
        f"{POSTGRES} pgbench -q -i -h $PWD postgres && {POSTGRES} pgbench -h $PWD -c 2 -t 50 postgres >out; "
        f"{POSTGRES} pg_ctl -s -D d stop",
    ),
    "MariaDB": Program(
        "mariadbd",
        "chown mysql . && chmod 711 . .. && mariadb-install-db --user=mysql --datadir=$PWD/d >/dev/null 2>&1",
        "mariadbd --user=mysql --datadir=$PWD/d --socket=$PWD/s --skip-networking --pid-file=$PWD/p 2>log & "
        "until mariadb-admin -S $PWD/s ping; do sleep 0.2; done >/dev/null 2>&1; "
        "mariadb-slap -S $PWD/s -a --number-of-queries=200 -c 2 >out; mariadb-admin -S $PWD/s shutdown; wait",
    ),
    "RocksDB": Program(
        "rocksdb_ldb",
        "true",
        "for i in 1 2 3; do rocksdb_ldb --db=d --create_if_missing put k$i v; done && rocksdb_ldb --db=d compact",
    ),
    "sudo": Program("sudo", TREE, "sudo -u nobody sh -c 'cat tree/* | wc -c; dd if=/dev/zero of=/dev/null count=9'"),
    **{
        f"fio {engine}": Program(
            "fio",
            "true",
            f"fio --name=j --filename=f --size=1m --bs=4k --rw=randrw --ioengine={engine} --thread --numjobs=2 >out",
        )
        for engine in ("sync", "psync", "vsync", "pvsync2", "libaio", "io_uring", "mmap", "splice")
    },
}
RESTARTED = frozenset({-512, -513, -514, -516})
"""A call that a signal interrupted begins again (include/linux/errno.h); strace shows no result of it."""


@dataclass
class Verdict:
    """What both saw of one run, and where they differ."""

    threads: int = 0
    calls: int = 0
    differences: list[str] = field(default_factory=list)
    names: Comparison = field(default_factory=lambda: Comparison(wrong=[]))


def run(program: Program, folder: Path) -> Verdict:
    """Run a program in a new folder, and compare what lo2io and strace saw of it."""
    work, log = folder / "work", folder / "strace"
    work.mkdir(parents=True)
    inside = f"cd {shlex.quote(str(work))} && "
    subprocess.run(["sh", "-c", inside + program.prepare], check=True)
    strace = ["strace", "-f", "-qq", "-y", "-xx", "-s", "0", "-o", log, "-e", f"trace={','.join(CALLS)}"]
    command = [
        LO2IO,
        "record",
        "-q",
        "-o",
        folder / "T",
        "-e",
        "syscalls",
        "--",
        *strace,
        "sh",
        "-c",
        inside + program.run,
    ]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    recorded = Recorded(open_trace(folder / "T"), 0, done.stdout, done.stderr)
    assert recorded.trace.completeness.proven, done.stderr
    return compare(Names(recorded, []), log)


def compare(names: Names, log: Path) -> Verdict:
    """Thread by thread the same calls with the same results, about the same files."""
    rows: dict[int, list[Row]] = defaultdict(list)
    for row in names.rows:
        if row["call"] in CALLS and row["end_time_ns"] is not None and row["result"] not in RESTARTED:
            rows[row["tid"]].append(row)
    verdict = Verdict()
    for index, (tid, seen) in enumerate(read_log(log).items()):
        # Before its exec the first thread was strace's own child, which strace does not show.
        mine = rows[tid][-len(seen) :] if index == 0 else rows[tid]
        verdict.threads += 1
        verdict.calls += len(seen)
        here, there = [(row["call"], row["result"]) for row in mine], [(call.call, call.result) for call in seen]
        if here == there:
            compare_thread(names, verdict.names, list(zip(seen, mine, strict=True)))
        else:
            verdict.differences += _differences(tid, here, there)
    return verdict


def _differences(tid: int, here: Sequence[tuple[str, int]], there: Sequence[tuple[str, int]]) -> list[str]:
    only_here, only_there = Counter(here) - Counter(there), Counter(there) - Counter(here)
    found = [f"{tid}: lo2io alone {key} {count}x" for key, count in only_here.items()]
    found += [f"{tid}: strace alone {key} {count}x" for key, count in only_there.items()]
    return found or [f"{tid}: another order"]


def main() -> int:
    """Print the table; the exit code says whether all was equal."""
    folder, chosen = Path(sys.argv[1]).resolve(), sys.argv[2:] or list(PROGRAMS)
    print("| program | threads | calls | differences | opens | named as strace has them | wrong names |")
    print("|---|---|---|---|---|---|---|")
    failed = 0
    for name in chosen:
        program = PROGRAMS[name]
        if not shutil.which(program.needs):
            print(f"| {name} | not installed | | | | | |", flush=True)
            continue
        verdict = run(program, folder / name.replace(" ", "-").replace("|", "to"))
        found, wrong = verdict.names, verdict.names.wrong or []
        counts = (verdict.threads, verdict.calls, len(verdict.differences), found.opens, found.named, len(wrong))
        print(f"| {name} | {' | '.join(f'{count:,}' for count in counts)} |", flush=True)
        for line in (*verdict.differences[:9], *wrong[:9]):
            print(line, file=sys.stderr)
        failed += bool(verdict.differences or wrong)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
