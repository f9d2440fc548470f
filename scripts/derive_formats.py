#!/usr/bin/env python3
"""Write the format files of the block tracepoints from a kernel's header, for tests/data.

usage: derive_formats.py LINUX-HEADERS-DIRECTORY OUTPUT-DIRECTORY

The directory is what a distribution's headers package installs (it holds Makefile and include/). A tracepoint's record
is a C struct: the common header of 8 bytes, then the members of TP_STRUCT__entry in their order, each at the next
multiple of its alignment. A dynamic array is a 4-byte __data_loc. char is signed unless the kernel is built with
-funsigned-char (since 6.2). The ID is assigned at boot, so any number serves; "print fmt" is left out.
"""

import re
import sys
from pathlib import Path

EVENTS = ("rq_insert", "rq_issue", "rq_complete", "rq_requeue", "rq_merge", "bio_frontmerge", "bio_queue")
SIZES = {"dev_t": (4, 0), "sector_t": (8, 0), "unsigned int": (4, 0), "int": (4, 1), "unsigned short": (2, 0)}
"""Type → bytes (= alignment on x86-64), signed."""
HEADER = """\
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
"""


def entry_of(header: str, event: str) -> str:
    """The TP_STRUCT__entry that an event has, its own or its class's."""
    use = re.search(rf"DEFINE_EVENT\((\w+),\s*{event},", header)
    name = use[1] if use else event
    found = re.search(
        rf"(?:TRACE_EVENT|DECLARE_EVENT_CLASS)\({name},.*?TP_STRUCT__entry\((.*?)\n\t\),", header, re.DOTALL
    )
    if not found:
        sys.exit(f"{event}: no TP_STRUCT__entry found")
    return found[1]


def layout(entry: str, lengths: dict[str, int], char_signed: int) -> str:
    """The ``field:`` lines of one record."""
    lines, place = [], 8
    for kind, arguments in re.findall(r"__(field|array|dynamic_array)\(([^)]*)\)", entry):
        ctype, name, *length = (" ".join(part.split()) for part in arguments.split(","))
        if kind == "field":
            size, signed = SIZES[ctype]
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
    """Write OUTPUT/events/block/*/format."""
    source, output = Path(sys.argv[1]), Path(sys.argv[2])
    header = (source / "include/trace/events/block.h").read_text()
    rwbs = re.search(r"#define RWBS_LEN\s+(\d+)", header)
    if not rwbs:
        sys.exit("no RWBS_LEN found")
    lengths = {"RWBS_LEN": int(rwbs[1]), "TASK_COMM_LEN": 16}
    char_signed = 0 if "-funsigned-char" in (source / "Makefile").read_text() else 1
    for number, short in enumerate(EVENTS, 1001):
        event = f"block_{short}"
        path = output / "events/block" / event / "format"
        path.parent.mkdir(parents=True, exist_ok=True)
        fields = layout(entry_of(header, event), lengths, char_signed)
        path.write_text(f"name: {event}\nID: {number}\nformat:\n{HEADER}\n{fields}")


if __name__ == "__main__":
    main()
