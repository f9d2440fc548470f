"""The catalog's entries for io_uring and libaio, and files that it refuses."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from lo2io.catalog.catalog import Catalog, load_catalog
from lo2io.catalog.layouts import RING_PLACES
from lo2io.catalog.rings import RING_FIELDS, RING_ROLE_FIELDS
from lo2io.errors import CatalogError
from lo2io.model import CallKind, IocbCommand, OpcodeSpec, Returns, Role, TracepointSpec
from lo2io.model import OpcodeTrait as T

if TYPE_CHECKING:
    from pathlib import Path

RINGS = """\
schema = 1
[[operation]]
name = "ring_request"
key = ["ctx", "req"]
begins = ["submit"]
issues = ["file_get"]
ends = ["complete"]
changes = ["wake"]
decode = { result = "result" }
summary = "A request."
[[tracepoint]]
event = "io_uring:io_uring_complete"
operation = "ring_request"
role = "complete"
group = "io_uring"
optional = true
newer = "io_uring:io_uring_done"
ctx = "ctx"
req = ["req", "request"]
result = "res"
summary = "Done."
[[tracepoint]]
event = "io_uring:io_uring_done"
operation = "ring_request"
role = "complete"
group = "io_uring"
ctx = "ctx"
summary = "Done, later."
[[tracepoint]]
event = "io_uring:io_uring_create"
role = "create"
group = "io_uring"
ctx = "ctx"
fd = "fd"
summary = "Made."
[[opcode]]
number = 0
name = "NOP"
returns = "value"
summary = "Nothing."
[[opcode]]
number = 1
name = "READV"
kind = "read"
returns = "bytes"
io_mode = "read"
summary = "Reads."
"""
CALL = """\
schema = 1
[[call]]
name = "io_uring_setup"
group = "io_uring"
kind = "ring_setup"
returns = "fd"
region_role = "file_io_metadata"
count = "entries"
fixed_flags = 2
summary = "Makes a ring."
[[call]]
name = "io_getevents"
group = "aio"
kind = "aio_collect"
returns = "count"
region_role = "file_io"
context = "ctx_id"
wanted = "min_nr"
count = "nr"
summary = "Collects."
"""


@pytest.fixture
def catalog() -> Catalog:
    """The one that comes with lo2io."""
    return load_catalog()


def load(folder: Path, text: str) -> Catalog:
    """A catalog of one file."""
    (folder / "made.toml").write_text(text, encoding="utf-8")
    return load_catalog(folder)


def test_every_role_is_played_by_one_tracepoint(catalog: Catalog) -> None:
    """18 tracepoints for 17 roles: one was renamed."""
    rings = [spec for spec in catalog.tracepoints if spec.group == "io_uring"]
    assert len(rings) == 18
    assert all(spec.core and spec.optional for spec in rings)
    roles = Counter(spec.role for spec in rings)
    assert roles.keys() == RING_ROLE_FIELDS.keys() == {role for role in Role if role.name.startswith("RING_")}
    assert {role for role, count in roles.items() if count > 1} == {Role.RING_SUBMIT}
    assert {spec.event: spec.newer for spec in rings if spec.newer} == {
        "io_uring:io_uring_submit_sqe": "io_uring:io_uring_submit_req"
    }


def test_every_field_that_means_something_is_named(catalog: Catalog) -> None:
    """Each tracepoint names all fields that its role can use."""
    for spec in catalog.tracepoints:
        if spec.role in RING_ROLE_FIELDS:
            assert set(spec.fields) == set(RING_ROLE_FIELDS[spec.role]), spec.event


def test_idle_pollers_are_kept_out_by_the_kernel(catalog: Catalog) -> None:
    """Half a million samples a second that say that nothing was done."""
    filters = catalog.select([]).filters
    assert filters["io_uring:io_uring_task_work_run"] == "count > 0"
    assert [event for event in filters if event.startswith("io_uring:")] == ["io_uring:io_uring_task_work_run"]


def test_places_of_fields_are_those_of_the_engine() -> None:
    """In the order of enum lo2_field_id."""
    assert RING_PLACES["ctx"] == 0
    assert RING_PLACES["offset"] == 11
    assert tuple(RING_PLACES) == RING_FIELDS


def test_opcodes_are_those_of_the_kernel(catalog: Catalog) -> None:
    """By number; their effects on descriptors are those of the calls of the same name."""
    assert [opcode.number for opcode in catalog.opcodes] == list(range(len(catalog.opcodes)))
    assert catalog.opcodes[4] == OpcodeSpec(
        4,
        "READ_FIXED",
        CallKind.READ,
        Returns.BYTES,
        "read",
        "Reads into a registered buffer.",
        T.FILE | T.LOOKS_UP | T.OFFSET | T.LENGTH | T.FIXED_BUFFER | T.QUEUES | T.POLLED | T.UNBOUNDED,
    )
    by_name = {opcode.name: opcode for opcode in catalog.opcodes}
    assert len(by_name) == len(catalog.opcodes)
    for number, name in {19: "CLOSE", 29: "EPOLL", 46: "URING_CMD", 47: "SEND_ZC", 62: "PIPE"}.items():
        assert by_name[name].number == number
    assert {name for name, opcode in by_name.items() if opcode.kind is CallKind.OPEN} == {
        "ACCEPT",
        "OPENAT",
        "OPENAT2",
        "SOCKET",
        "FIXED_FD_INSTALL",
    }
    assert {name for name, opcode in by_name.items() if opcode.io_mode == "flush"} == {"FSYNC", "SYNC_FILE_RANGE"}
    assert by_name["SPLICE"].kind is by_name["TEE"].kind is CallKind.COPY
    moving = {CallKind.READ, CallKind.WRITE, CallKind.COPY}
    assert all((opcode.returns is Returns.BYTES) == (opcode.kind in moving) for opcode in catalog.opcodes)
    calls = {call.abi_name: call for call in catalog.calls}
    for opcode in catalog.opcodes:
        call = calls.get(opcode.name.lower())
        if call is not None and call.kind is not CallKind.META and opcode.name not in {"READ", "WRITE"}:
            assert (opcode.kind, opcode.returns) == (call.kind, call.returns), opcode.name


def test_calls_of_rings_and_libaio(catalog: Catalog) -> None:
    """Their kinds, and the fields of a batch's size and of completions that it waits for."""
    calls = {call.name: call for call in catalog.calls if call.group in {"io_uring", "aio"}}
    assert {name: call.kind for name, call in calls.items() if call.core} == {
        "io_setup": CallKind.AIO_SETUP,
        "io_destroy": CallKind.AIO_DESTROY,
        "io_submit": CallKind.AIO_SUBMIT,
        "io_getevents": CallKind.AIO_COLLECT,
        "io_pgetevents": CallKind.AIO_COLLECT,
        "io_uring_setup": CallKind.RING_SETUP,
        "io_uring_enter": CallKind.RING_ENTER,
        "io_uring_register": CallKind.RING_REGISTER,
    }
    assert calls["io_uring_enter"].fields == {
        "fd": "fd",
        "count": "to_submit",
        "wanted": "min_complete",
        "flags": "flags",
    }
    fields = {"context": "ctx_id", "wanted": "min_nr", "count": "nr", "events": "events"}
    assert calls["io_getevents"].fields == fields
    assert calls["io_destroy"].fields == {"context": "ctx"}
    assert calls["io_uring_setup"].fixed_flags == 0o2000002


def test_each_command_of_libaio_is_some_opcode(catalog: Catalog) -> None:
    """Of one each; two that claim the same are refused."""
    commands = [command for opcode in catalog.opcodes for command in opcode.iocbs]
    assert sorted(commands) == list(IocbCommand)


def test_a_command_of_libaio_may_be_taken_once(tmp_path: Path) -> None:
    """Otherwise, a libaio request's opcode would be unknown."""
    twice = RINGS.replace('summary = "Nothing."', 'iocbs = ["NOOP"]\nsummary = "Nothing."')
    load(tmp_path, twice)
    with pytest.raises(CatalogError, match="iocbs: NOOP is also another opcode's"):
        load(tmp_path, twice.replace('summary = "Reads."', 'iocbs = ["NOOP"]\nsummary = "Reads."'))


def test_a_file_of_rings_loads(tmp_path: Path) -> None:
    """Several names for a field, a tracepoint that was renamed, opcodes by number."""
    catalog = load(tmp_path, RINGS)
    assert catalog.tracepoints[0] == TracepointSpec(
        event="io_uring:io_uring_complete",
        role=Role.RING_COMPLETE,
        fields={"ctx": "ctx", "req": "req", "result": "res"},
        group="io_uring",
        core=False,
        optional=True,
        summary="Done.",
        operation="ring_request",
        newer="io_uring:io_uring_done",
        other_names={"req": ("request",)},
    )
    assert (catalog.tracepoints[2].role, catalog.tracepoints[2].operation) == (Role.RING_CREATE, "")
    assert catalog.opcodes[0] == OpcodeSpec(0, "NOP", CallKind.META, Returns.VALUE, "none", "Nothing.")
    assert catalog.select(["io_uring"]).newer == {"io_uring:io_uring_complete": "io_uring:io_uring_done"}
    assert catalog.select(["io_uring", "-io_uring:io_uring_complete"]).newer == {}
    calls = load(tmp_path, CALL).calls
    assert [call.kind for call in calls] == [CallKind.RING_SETUP, CallKind.AIO_COLLECT]


@pytest.mark.parametrize(
    ("text", "old", "new", "error"),
    [
        (RINGS, '\nctx = "ctx"', "", "io_uring:io_uring_complete: ctx: … role complete needs it"),
        (RINGS, 'fd = "fd"', 'req = "req"', "io_uring:io_uring_create: req: … this key is unknown"),
        (RINGS, 'req = ["req", "request"]', "req = []", "io_uring:io_uring_complete: req: … neither a field's name"),
        (RINGS, 'req = ["req", "request"]', 'req = ["req", 3]', "io_uring:io_uring_complete: req: … neither a field's"),
        (RINGS, 'req = ["req", "request"]', 'req = "REC->r"', "io_uring:io_uring_complete: req: … neither a field's"),
        (RINGS, 'newer = "io_uring:io_uring_done"', 'newer = "done"', "io_uring:io_uring_complete: newer: … not fit"),
        (RINGS, 'role = "create"', 'role = "submit"', "io_uring:io_uring_create: operation: … is missing"),
        (RINGS, 'role = "complete"', 'role = "punt"', "io_uring:io_uring_complete: role: … does not list 'punt'"),
        (RINGS, 'name = "ring_request"', 'name = "rings"', "operation rings: name: … none of request, ring_request"),
        (RINGS, 'changes = ["wake"]', 'changes = ["merge"]', "operation ring_request: changes: … 'merge' is none of"),
        (RINGS, 'key = ["ctx", "req"]', 'key = ["sector"]', "operation ring_request: key: … 'sector' is none of ctx"),
        (RINGS, "number = 1", "number = 2", "opcode READV: number: … 2 stands in the place of 1"),
        (RINGS, "number = 1", "number = 0", "opcode READV: number: … 0 stands in the place of 1"),
        (RINGS, "number = 1", "number = 255", "opcode READV: number: … 255 is no number below 255"),
        (RINGS, "number = 1", "number = true", "opcode READV: number: … True is no number"),
        (RINGS, "number = 1", "", "opcode READV: number: … None is no number"),
        (RINGS, 'name = "READV"', 'name = "readv"', "opcode readv: name: … does not fit"),
        (RINGS, 'name = "READV"', 'name = "NOP"', "opcode NOP: name: … described twice"),
        (RINGS, 'kind = "read"', 'kind = "seek"', "opcode READV: kind: … 'seek' is none of meta"),
        (RINGS, 'returns = "bytes"', 'returns = "offset"', "opcode READV: returns: … 'offset' is none of"),
        (RINGS, 'returns = "bytes"', 'returns = "fd"', "opcode READV: returns: … kind open returns an fd"),
        (RINGS, 'kind = "read"', 'kind = "open"', "opcode READV: io_mode: … 'read' is none of none"),
        (RINGS, 'io_mode = "read"', 'io_mode = "write"', "opcode READV: io_mode: … 'write' is none of read"),
        (
            RINGS,
            'summary = "Reads."',
            'summary = "Reads."\niocbs = ["pread"]',
            "READV: iocbs: … 'pread' is none of PREAD",
        ),
        (RINGS, 'summary = "Reads."', 'summary = "Reads."\nfd = "fd"', "opcode READV: fd: … this key is unknown"),
        (CALL, 'count = "entries"', "", "call io_uring_setup: count: … kind ring_setup needs it"),
        (CALL, 'returns = "fd"', 'returns = "zero"', "call io_uring_setup: returns: … kind ring_setup returns fd"),
        (
            CALL,
            'count = "entries"',
            'count = "entries"\nfd = "fd"',
            "call io_uring_setup: fd: … the call returns the fd",
        ),
        (CALL, 'context = "ctx_id"', "", "call io_getevents: context: … kind aio_collect needs it"),
        (CALL, 'wanted = "min_nr"', "", "call io_getevents: wanted: … kind aio_collect needs it"),
        (CALL, 'count = "entries"', 'count = "entries"\nwanted = "w"', "call io_uring_setup: wanted: … has no meaning"),
        (CALL, 'kind = "aio_collect"', 'kind = "aio_destroy"', "call io_getevents: wanted: … has no meaning for kind"),
        (CALL, 'kind = "aio_collect"', "", "call io_getevents: wanted: … has no meaning for kind meta"),
    ],
)
def test_a_broken_rule_is_refused_with_its_place(tmp_path: Path, text: str, old: str, new: str, error: str) -> None:
    """A change to a good file breaks a rule; the error names file, entry and key."""
    assert old in text
    with pytest.raises(CatalogError) as caught:
        load(tmp_path, text.replace(old, new, 1))
    place, what = error.split(": … ")
    assert caught.value.tried.startswith("made.toml: ")
    assert caught.value.tried.endswith(place)
    assert what in caught.value.answer


def test_what_took_a_tracepoints_place_is_described(tmp_path: Path) -> None:
    """Otherwise it would be recorded nowhere."""
    with pytest.raises(CatalogError, match="nobody describes io_uring:io_uring_end"):
        load(tmp_path, RINGS.replace('newer = "io_uring:io_uring_done"', 'newer = "io_uring:io_uring_end"'))


def test_opcodes_and_operations_stand_in_one_file(tmp_path: Path) -> None:
    """Two would both be number 0, or both say how requests are paired."""
    (tmp_path / "first.toml").write_text(RINGS, encoding="utf-8")
    opcode = 'schema = 1\n[[opcode]]\nnumber = 0\nname = "NOP"\nreturns = "value"\nsummary = "Nothing."\n'
    with pytest.raises(CatalogError, match="opcode 0 described twice"):
        load(tmp_path, opcode)
    operation = RINGS[: RINGS.index("[[tracepoint]]")]
    with pytest.raises(CatalogError, match="operation ring_request described twice"):
        load(tmp_path, operation)
