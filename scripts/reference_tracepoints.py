#!/usr/bin/env python3
"""Write docs/reference/tracepoints.md from tracepoints/*.toml; --check compares it with the current page."""

import sys
from pathlib import Path

from lo2io.catalog.catalog import Catalog, load_catalog
from lo2io.catalog.files import DECODERS, ROLE_NAMES, OperationSpec
from lo2io.model import CallSpec, TracepointSpec

OUTPUT = Path(__file__).parent.parent / "docs/reference/tracepoints.md"
INTRODUCTION = """\
# Calls and tracepoints

Made by `scripts/reference_tracepoints.py` from `tracepoints/*.toml`; the keys of these files are explained in
[tracepoint files](tracepoint-files.md). `lo2io tracepoints show NAME` says the same of one call, and
`lo2io tracepoints check` compares all of it with the running kernel.

**Bold** calls are recorded by default. `--events` takes the names of groups, of calls (by either name; where a group
has the same name, `sys_read` is the call alone), and of single tracepoints (`syscalls:sys_enter_statx`). `+NAME` adds
to the default, `-NAME` takes away. With only one half of a call chosen nothing can be paired: entries stay in flight,
exits are orphans.
"""
OPCODES = """\
`lo2io tracepoints show opcodes` lists what requests of a ring can do, in the terms of calls: *kind* and *I/O mode* as
below, and what the completion returns. The names are those the kernel prints; in programs they begin with
`IORING_OP_`. [`tracepoints/io_uring.toml`](../../tracepoints/io_uring.toml) has their traits, too;
[tracepoint files](tracepoint-files.md#opcode-what-a-request-of-io_uring-does) explains these.
"""
CALLS = """\
A call is the tracepoints `syscalls:sys_enter_NAME` and `syscalls:sys_exit_NAME`; NAME is given in brackets where it is
not the call's own. *Fields* says which field of the entry is what: `fd`, `fd2` (the target; the written side of a
copy), `count` (bytes; † a number of vectors, messages or requests), `offset`, `flags` (whence, command or mode where
the call has such), `path`, `wanted` (completions to wait for), `context` (of libaio). The result comes from the exit's
field `ret`. *Kind* and *I/O mode* are what lo2io makes of it, *class* is its class in reports (‡ it waits for others by
its nature); region roles are `file_io` for calls in italics,
`function` for those in `code`, else `file_io_metadata`.
"""


def groups_table(catalog: Catalog) -> str:
    """The events that each name for ``--events`` chooses."""
    rows = ["| group | calls | other tracepoints |", "|---|---|---|"]
    for name, events in catalog.groups().items():
        specs = catalog.specs(events)
        calls = sum(isinstance(spec, CallSpec) for spec in specs)
        rows.append(f"| `{name}` | {calls or ''} | {len(specs) - calls or ''} |")
    return "\n".join(rows)


def call_row(call: CallSpec) -> str:
    """One line of a group's table."""
    mark = {"file_io": "*", "function": "`", "file_io_metadata": ""}[call.region_role]
    bold = "**" if call.core else ""
    name = f"{bold}{mark}{call.abi_name}{mark}{bold}"
    if call.name != call.abi_name:
        name += f" ({call.name})"
    dagger = "†" if call.vectored else ""
    fields = [f"{role}{dagger if role == 'count' else ''} `{field}`" for role, field in call.fields.items()]
    if call.fixed_flags is not None:
        fields.append(f"flags always `0o{call.fixed_flags:o}`")
    if call.fd_unless:
        fields.append(f"no fd if flags have `0x{call.fd_unless:x}`")
    if call.waits_if:
        fields.append(f"waits if flags have `0x{call.waits_if:x}`")
    of_class = call.report_class.name.lower() + ("‡" if call.waits else "")
    kind = call.kind.name.lower() + (
        f", {call.io_mode}" if call.io_mode not in {"none", call.kind.name.lower()} else ""
    )
    cells = (name, kind, of_class, call.returns.name.lower(), ", ".join(fields), escape(call.summary))
    return f"| {' | '.join(cells)} |"


def escape(text: str) -> str:
    """A text inside a table's cell."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def operation_section(operation: OperationSpec, tracepoints: list[TracepointSpec]) -> str:
    """An operation, its tracepoints and the units of its fields."""
    units = [f"| {role} | {escape(DECODERS[name])} |" for role, name in operation.decode.items()]
    return "\n".join(
        [
            f"## Operation {operation.name}\n",
            escape(operation.summary),
            f"Two in flight are told apart by {' and '.join(operation.key)}; the rules of pairing stand in",
            "[how lo2io is built](../explanation/design.md).\n",
            *tracepoint_rows(tracepoints),
            "\n| field | what the number says |",
            "|---|---|",
            *units,
        ]
    )


def tracepoint_rows(tracepoints: list[TracepointSpec]) -> list[str]:
    """A table of tracepoints."""
    rows = ["| tracepoint | role | fields | |", "|---|---|---|---|"]
    for spec in tracepoints:
        names = {role: (name, *spec.other_names.get(role, ())) for role, name in spec.fields.items()}
        fields = ", ".join(
            role if several == (role,) else f"{role} {' or '.join(f'`{name}`' for name in several)}"
            for role, several in names.items()
        )
        note = f" Filter: `{spec.filter}`." if spec.filter else ""
        if spec.optional and not spec.event.startswith("io_uring:"):
            note += " Kernels without it are recorded without it."
        rows.append(f"| `{spec.event}` | {ROLE_NAMES[spec.role]} | {fields} | {escape(spec.summary)}{note} |")
    return rows


def page(catalog: Catalog) -> str:
    """The whole page."""
    parts = [INTRODUCTION, "## Groups\n", groups_table(catalog), ""]
    for operation in catalog.operations:
        members = [spec for spec in catalog.tracepoints if spec.operation == operation.name]
        parts += [operation_section(operation, members), ""]
    lone = [spec for spec in catalog.tracepoints if not spec.operation]
    parts += ["## Tracepoints that take part in no operation\n", *tracepoint_rows(lone), ""]
    parts += ["## Opcodes of io_uring\n", OPCODES]
    parts += ["## Calls\n", CALLS]
    groups = dict.fromkeys(call.group for call in catalog.calls)
    for group in groups:
        parts += [f"### {group}\n", "| call | kind | class | returns | fields | |", "|---|---|---|---|---|---|"]
        parts += [call_row(call) for call in catalog.calls if call.group == group]
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def main() -> int:
    """Write the page, or compare it with the one that is there."""
    text = page(load_catalog())
    if "--check" not in sys.argv:
        OUTPUT.write_text(text, encoding="utf-8")
        return 0
    if OUTPUT.read_text(encoding="utf-8") == text:
        return 0
    print(f"{OUTPUT} is not current: run scripts/reference_tracepoints.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
