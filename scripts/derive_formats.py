#!/usr/bin/env python3
"""Write the format files of the block and io_uring tracepoints from a kernel's headers, for tests/data.

usage: derive_formats.py LINUX-HEADERS-DIRECTORY OUTPUT-DIRECTORY

A distribution's headers package installs the directory (it holds Makefile and include/). A tracepoint's record is a C
struct: the common header of 8 bytes, then the members of TP_STRUCT__entry in their order, each at the next multiple of
its alignment. A dynamic array or string is a 4-byte __data_loc. char is signed unless the kernel is built with
-funsigned-char (since 6.2). The kernel assigns the ID at boot, so any number does; "print fmt" is left out.
"""

import itertools
import re
import sys
from pathlib import Path

BLOCK_EVENTS = ("rq_insert", "rq_issue", "rq_complete", "rq_requeue", "rq_merge", "bio_frontmerge", "bio_queue")
FIRST_ID = {"block": 1001, "io_uring": 1101}
SIZES = {
    "dev_t": (4, 0),
    "sector_t": (8, 0),
    "unsigned long long": (8, 0),
    "unsigned int": (4, 0),
    "unsigned": (4, 0),
    "unsigned short": (2, 0),
    "long": (8, 1),
    "int": (4, 1),
    "s32": (4, 1),
    "u64": (8, 0),
    "u32": (4, 0),
    "u16": (2, 0),
    "u8": (1, 0),
    "bool": (1, 0),
}
"""Type → bytes (= alignment on x86-64), signed. A pointer, which ends in *, has 8 and no sign."""
HEADER = """\
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
"""


def entry_of(header: str, event: str) -> str:
    """The TP_STRUCT__entry of an event, its own or its class's."""
    use = re.search(rf"DEFINE_EVENT\((\w+),\s*{event},", header)
    name = use[1] if use else event
    found = re.search(
        rf"(?:TRACE_EVENT|DECLARE_EVENT_CLASS)\({name},.*?TP_STRUCT__entry ?\((.*?)\n\t\),", header, re.DOTALL
    )
    if not found:
        sys.exit(f"{event}: no TP_STRUCT__entry found")
    return found[1]


def layout(entry: str, lengths: dict[str, int], char_signed: int) -> str:
    """The ``field:`` lines of one record."""
    lines, place = [], 8
    for kind, arguments in re.findall(r"__(field|array|dynamic_array|string) ?\(([^)]*)\)", entry):
        ctype, name, *length = (" ".join(part.split()) for part in arguments.split(","))
        if kind == "string":  # its arguments are a name and the source of the text
            ctype, name = "char", ctype
        if kind == "field":
            size, signed = (8, 0) if ctype.endswith("*") else SIZES[ctype]
            place += -place % size
            declaration = f"{ctype} {name}"
        elif kind == "array":
            size, signed = lengths[length[0]], char_signed
            declaration = f"{ctype} {name}[{size}]"
        else:
            size, signed = 4, char_signed
            place += -place % size
            declaration = f"__data_loc {ctype}[] {name}"
        lines.append(f"\tfield:{declaration};\toffset:{place};\tsize:{size};\tsigned:{signed};\n")
        place += size
    return "".join(lines)


def main() -> None:
    """Write OUTPUT/events/*/*/format."""
    source, output = Path(sys.argv[1]), Path(sys.argv[2])
    block = (source / "include/trace/events/block.h").read_text()
    rings = (source / "include/trace/events/io_uring.h").read_text()
    rwbs = re.search(r"#define RWBS_LEN\s+(\d+)", block)
    if not rwbs:
        sys.exit("no RWBS_LEN found")
    lengths = {"RWBS_LEN": int(rwbs[1]), "TASK_COMM_LEN": 16}
    char_signed = 0 if "-funsigned-char" in (source / "Makefile").read_text() else 1
    events = [("block", f"block_{short}", block) for short in BLOCK_EVENTS]
    events += [("io_uring", event, rings) for event in sorted(re.findall(r"TRACE_EVENT\((io_uring_\w+),", rings))]
    numbers = {subsystem: itertools.count(first) for subsystem, first in FIRST_ID.items()}
    for subsystem, event, header in events:
        path = output / "events" / subsystem / event / "format"
        path.parent.mkdir(parents=True, exist_ok=True)
        fields = layout(entry_of(header, event), lengths, char_signed)
        path.write_text(f"name: {event}\nID: {next(numbers[subsystem])}\nformat:\n{HEADER}\n{fields}")


if __name__ == "__main__":
    main()
