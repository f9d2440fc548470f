"""Has the native part work while one of its requests for memory is refused, each in turn.

``python -m workloads.refusing_memory FOLDER``, with ``refusing_memory.c`` preloaded, prints a line of JSON for each
kind of work: how many ``requests`` it makes, after how many there were ``errors``, and what was ``wrong``: numbers of
requests after which there was neither an error nor the whole result, with the exit code. ``left`` are pieces of memory
that the work took and did not give back.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from build.foreign_archives import score_p
from build.kernelwriter import KernelSpool
from build.otf2_batches import END
from build.perfwriter import replay
from build.ringtables import example
from reference.compare import run_native
from reference.fact_histories import Witness
from reference.ring_histories import RingMachine

from lo2io.catalog.catalog import load_catalog
from lo2io.convert.engine import Engine
from lo2io.errors import Lo2ioError
from lo2io.otf2.foreign.opening import open_any
from lo2io.otf2.write.writer import Otf2Writer
from lo2io.reports.summary.summary import summarize
from lo2io.spool.reader import SpoolReader

if TYPE_CHECKING:
    from collections.abc import Callable

LIBRARY = b"_lib.abi3"
SAME, ERROR, OTHER, NOT_REFUSED = range(4)
"""What came of it: exit codes of a fork."""


def spools(folder: Path) -> dict[str, Path]:
    """Recordings of made-up machines: rings, and facts that programs in the kernel told."""
    chance = random.Random(1)  # noqa: S311 - the same each time
    found = {}
    for name, machine in (("rings", RingMachine(2)), ("facts", Witness(2))):
        machine.start(2, flags=1)
        if isinstance(machine, RingMachine):
            machine.create(machine.threads[0], 0, 3)
        for _ in range(60):
            machine.move(*(chance.randrange(most) for most in (1024, 8, 1024, 1024, 8)))
        builder = KernelSpool(folder / name, rings="6.18" if name == "rings" else None, start_ns=100_500)
        replay(builder, machine.history)
        found[name] = builder.write()
    return found


def works(folder: Path) -> dict[str, Callable[[], Any]]:
    """What the native part does: the engine, the writer of events, the sums of a report, the reader of archives."""
    recorded = spools(folder)
    engine = Engine(SpoolReader(recorded["rings"]), load_catalog())
    batch = next(engine.batches())
    trace = example(folder / "rings-trace")
    score_p().trace.write(folder / "foreign")

    def foreign() -> Any:
        with open_any(folder / "foreign") as opened:
            return summarize(opened).activity

    def write() -> None:
        calls, opcodes, target = engine.catalog.rows, engine.catalog.opcodes, Path(tempfile.mkdtemp(dir=folder))

        with Otf2Writer(target, engine.spool.meta, calls, opcodes, block_records="both") as writer:
            writer.write(batch)
            writer.close(END)

    return {
        "rings": lambda: run_native(recorded["rings"]),
        "facts": lambda: run_native(recorded["facts"]),
        "write": write,
        "report": lambda: summarize(trace).activity,
        "foreign": foreign,
    }


def tried(work: Callable[[], Any], wanted: Any, library: Any, number: int) -> int:
    """Do it in a fork, with one request refused: what came of it, or minus the signal that ended it."""
    child = os.fork()
    if not child:
        code = OTHER
        try:
            assert library.refuse_memory(LIBRARY, number)
            found = work()
            code = NOT_REFUSED if not library.memory_was_refused() else SAME if found == wanted else OTHER
        except (Lo2ioError, MemoryError):
            code = ERROR
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    """Refuse each request of each kind of work."""
    library = ctypes.CDLL(None)
    library.memory_held.restype = ctypes.c_long
    library.refuse_memory(LIBRARY, 0)
    for name, work in works(Path(sys.argv[1])).items():
        wanted, number, wrong, errors = work(), 1, [], 0
        gc.collect()
        held = library.memory_held()
        work()
        gc.collect()
        left = library.memory_held() - held
        while (code := tried(work, wanted, library, number)) != NOT_REFUSED:
            wrong += [(number, code)] if code not in {SAME, ERROR} else []
            errors += code == ERROR
            number += 1
        print(
            json.dumps({"work": name, "requests": number - 1, "errors": errors, "wrong": wrong, "left": left}),
            flush=True,
        )


if __name__ == "__main__":
    main()
