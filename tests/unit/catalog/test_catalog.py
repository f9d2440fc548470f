"""The catalog: what comes with lo2io is sound, what breaks a rule is refused with its place, and --events chooses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lo2io.catalog.catalog import Catalog, load_catalog
from lo2io.errors import CatalogError, UsageError
from lo2io.model import CallClass, CallKind, CallSpec, Returns, Role, TracepointSpec

if TYPE_CHECKING:
    from pathlib import Path

CALL = """\
schema = 1
[[call]]
name = "pread64"
group = "read"
core = true
kind = "read"
returns = "bytes"
io_mode = "read"
region_role = "file_io"
fd = "fd"
count = "count"
offset = "pos"
summary = "Reads."
"""
BLOCK = """\
schema = 1
[[operation]]
name = "request"
key = ["dev", "sector"]
begins = ["insert"]
issues = ["issue"]
ends = ["complete"]
changes = ["requeue"]
decode = { rwbs = "rwbs" }
summary = "A request."
[[tracepoint]]
event = "block:block_rq_insert"
operation = "request"
role = "insert"
group = "block"
dev = "dev"
sector = "sector"
nr_sector = "nr_sector"
rwbs = "rwbs"
summary = "Queued."
"""
LONE = """\
schema = 1
[[tracepoint]]
event = "cgroup:cgroup_attach_task"
role = "cgroup_attach"
group = "cgroup"
tid = "pid"
path = "dst_path"
hierarchy = "dst_root"
summary = "Moved."
"""
CORE_CALLS = set(
    """
    read pread64 readv preadv preadv2 write pwrite64 writev pwritev pwritev2 open openat openat2 creat close close_range
    lseek fsync fdatasync sync syncfs sync_file_range dup dup2 dup3 fcntl flock truncate ftruncate fallocate sendfile64
    copy_file_range splice clone unshare
    io_setup io_destroy io_submit io_getevents io_pgetevents io_uring_setup io_uring_enter io_uring_register
    """.split()  # noqa: SIM905  a list of so many literals would not be read
)


@pytest.fixture
def catalog() -> Catalog:
    """The one that comes with lo2io."""
    return load_catalog()


def call(catalog: Catalog, name: str) -> CallSpec:
    """A call by its tracepoints' name."""
    return next(call for call in catalog.calls if call.name == name)


def load(folder: Path, text: str) -> Catalog:
    """A catalog of one file."""
    (folder / "made.toml").write_text(text, encoding="utf-8")
    return load_catalog(folder)


def test_the_own_catalog_describes_the_zoo(catalog: Catalog) -> None:
    """Calls, block tracepoints, io_uring's and those that stand alone; the core is recorded by default."""
    assert {call.name for call in catalog.calls if call.core} == CORE_CALLS
    assert {spec.role for spec in catalog.tracepoints if spec.core} == {
        Role.RQ_INSERT,
        Role.RQ_ISSUE,
        Role.RQ_COMPLETE,
        Role.RQ_REQUEUE,
        Role.RQ_MERGE,
        Role.BIO_FRONTMERGE,
        Role.BIO_FLUSH,
        *(role for role in Role if role.name.startswith("RING_")),
    }
    attach = next(spec for spec in catalog.tracepoints if spec.role is Role.CGROUP_ATTACH)
    assert attach.event == "cgroup:cgroup_attach_task"
    assert attach.optional
    assert attach.fields == {"tid": "pid", "path": "dst_path", "hierarchy": "dst_root"}


def test_calls_mean_what_their_manual_pages_say(catalog: Catalog) -> None:
    """Calls whose arguments are easily mixed up."""
    sendfile = call(catalog, "sendfile64")
    assert (sendfile.fields["fd"], sendfile.fields["fd2"]) == ("in_fd", "out_fd")
    assert "offset" not in sendfile.fields
    assert call(catalog, "dup3").fields == {"fd": "oldfd", "fd2": "newfd", "flags": "flags"}
    assert call(catalog, "fcntl").fields == {"fd": "fd", "flags": "cmd", "count": "arg"}
    assert call(catalog, "lseek").fields == {"fd": "fd", "offset": "offset", "flags": "whence"}
    assert call(catalog, "close_range").fields == {"fd": "fd", "fd2": "max_fd", "flags": "flags"}
    assert call(catalog, "creat").fixed_flags == 0o100 | 0o1 | 0o1000
    assert call(catalog, "preadv2").vectored
    assert call(catalog, "newfstat").abi_name == "fstat"
    assert call(catalog, "getdents64").kind is CallKind.META
    assert call(catalog, "getdents64").returns is Returns.BYTES
    assert call(catalog, "sync").kind is CallKind.SYNC
    assert not call(catalog, "sync").fields


GROUPED = """
schema = 1
[group]
nap = { class = "poll", waits = true, core = true }
[[call]]
name = "doze"
group = "nap"
returns = "zero"
region_role = "function"
summary = "Waits."
[[call]]
name = "wink"
group = "nap"
waits = false
returns = "zero"
region_role = "function"
summary = "Does not."
"""


def test_what_a_group_says_stands_for_its_calls(tmp_path: Path) -> None:
    """A call's own key comes first; a group without a call is a mistake."""
    doze, wink = load(tmp_path, GROUPED).calls
    assert (doze.report_class, doze.waits, doze.core) == (CallClass.POLL, True, True)
    assert (wink.report_class, wink.waits, wink.core) == (CallClass.POLL, False, True)
    for old, new, error in [
        ("nap = {", "knap = {", "group knap: group: no call is in it"),
        ('class = "poll"', 'class = "pipe"', "call doze: class: 'pipe' is none of read"),
        ("waits = true,", "wait = true,", "call doze: wait: this key is unknown"),
        ("waits = false", "waits_if = 4", "call wink: waits_if: is for calls with flags"),
        ("waits = false", "reads_first = true", "call wink: reads_first: is for calls with a path"),
        ("waits = false", 'accounts = ["reads"]', "call wink: accounts: 'reads' is none of read, write"),
    ]:
        with pytest.raises(CatalogError) as caught:
            load(tmp_path, GROUPED.replace(old, new, 1))
        assert f"{caught.value.tried}: {caught.value.answer}".startswith(f"made.toml: {error}")


def test_no_open_with_foreign_flags_claims_flags(catalog: Catalog) -> None:
    """Flags of kind open are read as those of open(2): only calls that take these have the role."""
    opens = {call.name for call in catalog.calls if call.kind is CallKind.OPEN and "flags" in call.fields}
    assert opens == {"open", "openat", "open_by_handle_at"}


def test_a_minimal_call_loads(tmp_path: Path) -> None:
    """Every key has its effect; missing ones have their defaults."""
    assert load(tmp_path, CALL).calls == (
        CallSpec(
            name="pread64",
            abi_name="pread64",
            group="read",
            core=True,
            kind=CallKind.READ,
            returns=Returns.BYTES,
            io_mode="read",
            region_role="file_io",
            fields={"fd": "fd", "count": "count", "offset": "pos"},
            summary="Reads.",
        ),
    )


def test_a_minimal_operation_loads(tmp_path: Path) -> None:
    """A tracepoint and the operation it takes part in."""
    catalog = load(tmp_path, BLOCK)
    assert catalog.tracepoints == (
        TracepointSpec(
            event="block:block_rq_insert",
            role=Role.RQ_INSERT,
            fields={"dev": "dev", "sector": "sector", "nr_sector": "nr_sector", "rwbs": "rwbs"},
            group="block",
            core=False,
            summary="Queued.",
            operation="request",
        ),
    )
    assert catalog.operations[0].roles == {"insert", "issue", "complete", "requeue"}


def test_a_tracepoint_may_stand_alone(tmp_path: Path) -> None:
    """It belongs to no operation."""
    (spec,) = load(tmp_path, LONE).tracepoints
    assert spec.role is Role.CGROUP_ATTACH
    assert spec.fields == {"tid": "pid", "path": "dst_path", "hierarchy": "dst_root"}


@pytest.mark.parametrize(
    ("text", "old", "new", "error"),
    [
        (CALL, "schema = 1", "", "top: schema: … None is not 1"),
        (CALL, "schema = 1", "schema = 2", "top: schema: … 2 is not 1"),
        (CALL, "schema = 1", "schema = true", "top: schema: … True is not 1"),
        (CALL, "schema = 1", "schema = 1\ncolour = 1", "top: colour: … this key is unknown"),
        (CALL, "[[call]]", "[call]", "top: call: … [[call]]"),
        (CALL, 'name = "pread64"', "", "call number 1: name: … is missing"),
        (CALL, 'name = "pread64"', 'name = "P read"', "call P read: name: … does not fit"),
        (CALL, 'name = "pread64"', 'name = "pread64"\nabi_name = 3', "call pread64: abi_name: … no text"),
        (CALL, 'group = "read"', "", "call pread64: group: … is missing"),
        (CALL, 'group = "read"', 'group = "-read"', "call pread64: group: … does not fit"),
        (CALL, "core = true", "core = 1", "call pread64: core: … neither true nor false"),
        (CALL, 'kind = "read"', 'kind = "reed"', "call pread64: kind: … 'reed' is none of meta, open"),
        (CALL, 'returns = "bytes"', "", "call pread64: returns: … is missing"),
        (CALL, 'returns = "bytes"', 'returns = "words"', "call pread64: returns: … 'words' is none of"),
        (CALL, 'io_mode = "read"', 'io_mode = "rw"', "call pread64: io_mode: … 'rw' is none of"),
        (CALL, 'io_mode = "read"', 'io_mode = "write"', "call pread64: io_mode: … kind read has read"),
        (CALL, 'region_role = "file_io"', "", "call pread64: region_role: … is missing"),
        (CALL, 'region_role = "file_io"', 'region_role = "io"', "call pread64: region_role: … 'io' is none of"),
        (CALL, 'fd = "fd"', "", "call pread64: fd: … kind read needs it"),
        (CALL, 'fd = "fd"', 'fd = "REC->fd"', "call pread64: fd: … does not fit"),
        (CALL, 'fd = "fd"', 'fd = "fd"\nfd2 = "other"', "call pread64: fd2: … has no meaning for kind read"),
        (CALL, 'kind = "read"', 'kind = "dup"', "call pread64: returns: … kind dup returns fd"),
        (CALL, 'kind = "read"', 'kind = "open"', "call pread64: fd: … has no meaning for kind open"),
        (CALL, 'kind = "read"', 'kind = "seek"', "call pread64: flags: … kind seek needs it"),
        (CALL, 'count = "count"', "vectored = true", "call pread64: vectored: … there is no count"),
        (CALL, 'fd = "fd"', 'fd = "fd"\npath2 = "other"', "call pread64: path2: … there is no path"),
        (CALL, 'fd = "fd"', 'fd = "fd"\ndirfd = "dfd"', "call pread64: dirfd: … there is no path"),
        (CALL, 'fd = "fd"', 'fd = "fd"\npath = "p"\ndirfd2 = "d"', "call pread64: dirfd2: … there is no path2"),
        (CALL, 'fd = "fd"', 'fd = "fd"\nvector = "vec"', "call pread64: vector: … the call must be vectored"),
        (CALL, 'fd = "fd"', 'fd = "fd"\nhow = "how"', "call pread64: how: … has no meaning for kind read"),
        (CALL, 'fd = "fd"', 'fd = "fd"\niocbs = "p"', "call pread64: iocbs: … has no meaning for kind read"),
        (CALL, 'fd = "fd"', 'fd = "fd"\nevents = "p"', "call pread64: events: … has no meaning for kind read"),
        (CALL, 'count = "count"', "fixed_flags = 1", "call pread64: fixed_flags: … kind open without flags"),
        (CALL, 'count = "count"', "fixed_flags = -1", "call pread64: fixed_flags: … -1 is no flag word"),
        (CALL, 'count = "count"', "fd_unless = 32", "call pread64: fd_unless: … is for calls with fd and flags"),
        (CALL, 'count = "count"', "fd_unless = true", "call pread64: fd_unless: … True is no flag word"),
        (CALL, 'count = "count"', 'cuont = "count"', "call pread64: cuont: … this key is unknown"),
        (CALL, 'fd = "fd"', 'fd = "fd"\nsyncs = "data"', "call pread64: syncs: … is for calls of kind sync"),
        (CALL, 'fd = "fd"', 'syncs = "all"', "call pread64: syncs: … 'all' is none of file, data"),
        (CALL, 'fd = "fd"', "number = 17", "call pread64: number: … 17 is no table"),
        (CALL, 'fd = "fd"', "number = { vax = 17 }", "call pread64: number: … 'vax' is none of x86_64, aarch64"),
        (CALL, 'fd = "fd"', "number = { x86_64 = 512 }", "call pread64: number: … 512 is no number below 512"),
        (CALL, 'fd = "fd"', "number = { x86_64 = true }", "call pread64: number: … True is no number"),
        (CALL, 'fd = "fd"', "i386 = 512", "call pread64: i386: … 512 is neither a number below 512 nor"),
        (CALL, 'fd = "fd"', 'i386 = ["512: 1"]', "call pread64: i386: … '512: 1' is neither a number"),
        (CALL, 'fd = "fd"', "i386 = [180, true]", "call pread64: i386: … True is neither a number"),
        (
            CALL,
            'fd = "fd"',
            'i386 = "180: 7 words in memory"',
            "call pread64: i386: … '7 words in memory' is no argument",
        ),
        (CALL, 'fd = "fd"', 'i386 = "180: 1, sighed 2"', "call pread64: i386: … 'sighed 2' is no argument"),
        (CALL, 'fd = "fd"', 'i386 = "180: 1, 2, 3, 4, 5, 6, 6"', "call pread64: i386: … more than 6 arguments"),
        (CALL, 'fd = "fd"', 'i386 = "socketcall 9: 1, 2"', "call pread64: i386: … words in memory"),
        (CALL, 'summary = "Reads."', "", "call pread64: summary: … is missing"),
        (CALL, 'summary = "Reads."', 'summary = ""', "call pread64: summary: … no text"),
        (BLOCK, 'key = ["dev", "sector"]', 'key = ["pid"]', "operation request: key: … 'pid' is none of dev"),
        (BLOCK, 'begins = ["insert"]', "begins = []", "operation request: begins: … no list of names"),
        (BLOCK, 'ends = ["complete"]', 'ends = ["end"]', "operation request: ends: … 'end' is none of"),
        (BLOCK, 'rwbs = "rwbs" }', 'rwbs = "eval(x)" }', "operation request: decode: … 'eval(x)' is none of"),
        (BLOCK, '{ rwbs = "rwbs" }', '{ comm = "rwbs" }', "operation request: decode: … no table of dev"),
        (BLOCK, 'event = "block:block_rq_insert"', "", "tracepoint number 1: event: … is missing"),
        (BLOCK, "block:block_rq_insert", "block_rq_insert", "tracepoint block_rq_insert: event: … does not fit"),
        (BLOCK, 'operation = "request"', 'operation = "bio"', "block:block_rq_insert: operation: … 'bio' is none of"),
        (BLOCK, 'role = "insert"', 'role = "queue"', "block:block_rq_insert: role: … 'queue' is none of"),
        (BLOCK, 'role = "insert"', 'role = "merge"', "block:block_rq_insert: role: … does not list 'merge'"),
        (BLOCK, '\nsector = "sector"', "", "block:block_rq_insert: sector: … is missing"),
        (BLOCK, 'operation = "request"', "", "block:block_rq_insert: operation: … is missing"),
        (BLOCK, 'begins = ["insert"]', 'begins = ["cgroup_attach"]', "operation request: begins: … is none of insert"),
        (LONE, 'path = "dst_path"', "", "cgroup:cgroup_attach_task: path: … role cgroup_attach needs it"),
        (LONE, 'tid = "pid"', 'tid = "pid"\ndev = "dev"', "cgroup:cgroup_attach_task: dev: … this key is unknown"),
        (
            LONE,
            "role =",
            'operation = "request"\nrole =',
            "cgroup:cgroup_attach_task: operation: … this key is unknown",
        ),
        (
            BLOCK,
            '\nsector = "sector"',
            '\nsector = "sector"\npid = "pid"',
            "block:block_rq_insert: pid: … this key is unknown",
        ),
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


@pytest.mark.parametrize("content", [b"schema = ", b'\xff = "x"', b"schema = 1\nschema = 1\n"])
def test_what_is_no_toml_is_refused(tmp_path: Path, content: bytes) -> None:
    """Broken TOML, broken UTF-8, a key twice."""
    (tmp_path / "made.toml").write_bytes(content)
    with pytest.raises(CatalogError, match=r"read made\.toml"):
        load_catalog(tmp_path)


def test_a_name_may_be_taken_once(tmp_path: Path) -> None:
    """Neither two entries for one event nor two calls with one name."""
    entry = CALL.removeprefix("schema = 1\n")
    with pytest.raises(CatalogError, match="pread64 described twice"):
        load(tmp_path, CALL + entry)
    with pytest.raises(CatalogError, match="'pread64' is also a name of"):
        load(tmp_path, CALL + entry.replace('name = "pread64"', 'name = "preadx"\nabi_name = "pread64"'))
    with pytest.raises(CatalogError, match="group all: is made of other groups"):
        load(tmp_path, CALL.replace('group = "read"', 'group = "all"'))


@pytest.mark.parametrize(
    ("key", "what"),
    [
        ("number = { aarch64 = 67 }", "aarch64 67"),
        ("i386 = 180", "i386 180"),
        ('i386 = "socketcall 9: 4 words in memory"', "socketcall 9"),
    ],
)
def test_a_number_may_be_taken_once(tmp_path: Path, key: str, what: str) -> None:
    """No number means two calls; those of 64 and of 32 bit programs, and of socketcalls, are apart."""
    numbers = 'number = { x86_64 = 180, aarch64 = 9 }\ni386 = [9, "socketcall 180: 1 words in memory"]\n'
    other = CALL.removeprefix("schema = 1\n").replace("pread64", "pwrite64")
    load(tmp_path, f"{CALL}{key}\n{other}{numbers}")
    with pytest.raises(CatalogError, match=f"call pwrite64: {what} is also pread64"):
        load(tmp_path, f"{CALL}{key}\n{other}{key}\n")


def test_the_default_is_the_core(catalog: Catalog) -> None:
    """Both halves of each core call and the block tracepoints, in the catalog's order."""
    chosen = catalog.select([])
    assert set(chosen.events) == {
        *(f"syscalls:sys_{half}_{name}" for name in CORE_CALLS for half in ("enter", "exit")),
        *(spec.event for spec in catalog.tracepoints if spec.core),
    }
    assert list(chosen.events) == [event for event in catalog.by_event if event in set(chosen.events)]
    assert chosen == catalog.select(["default"]) == catalog.select(["syscalls", "block", "io_uring"])


def test_groups_may_be_missing_and_names_may_not(catalog: Catalog) -> None:
    """A kernel may lack a call of a group, but not one that the user named."""
    chosen = catalog.select(["read,block", "sys_pread64"])
    assert "syscalls:sys_enter_readv" in chosen.optional
    assert "syscalls:sys_enter_pread64" not in chosen.optional
    assert {event for event in chosen.optional if event.startswith("block:")} == {
        "block:block_rq_requeue",
        "block:block_rq_merge",
        "block:block_bio_frontmerge",
        "block:block_bio_queue",
    }
    assert chosen.filters == {"block:block_bio_queue": 'rwbs ~ "F*"'}
    assert not catalog.select(["read"]).filters


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (["syscalls:sys_enter_statx"], {"syscalls:sys_enter_statx"}),
        (["statx"], {"syscalls:sys_enter_statx", "syscalls:sys_exit_statx"}),
        (["fstat"], {"syscalls:sys_enter_newfstat", "syscalls:sys_exit_newfstat"}),
        (["newfstat"], {"syscalls:sys_enter_newfstat", "syscalls:sys_exit_newfstat"}),
        (["sys_read"], {"syscalls:sys_enter_read", "syscalls:sys_exit_read"}),
        (["block:block_rq_issue"], {"block:block_rq_issue"}),
        (
            ["seek, block", "-block:block_rq_merge", "-block:block_rq_requeue"],
            {
                "syscalls:sys_enter_lseek",
                "syscalls:sys_exit_lseek",
                "block:block_rq_insert",
                "block:block_rq_issue",
                "block:block_rq_complete",
                "block:block_bio_frontmerge",
                "block:block_bio_queue",
            },
        ),
        (["metadata-size", "-truncate,-ftruncate"], {"syscalls:sys_enter_fallocate", "syscalls:sys_exit_fallocate"}),
        (["-all", "+sys_read"], {"syscalls:sys_enter_read", "syscalls:sys_exit_read"}),
    ],
)
def test_selecting(catalog: Catalog, tokens: list[str], expected: set[str]) -> None:
    """Groups, calls by either name, single tracepoints, commas and signs."""
    assert set(catalog.select(tokens).events) == expected


def test_signs_alone_change_the_default(catalog: Catalog) -> None:
    """``+`` and ``-`` without a plain name start from the default."""
    default = set(catalog.select([]).events)
    sockets = set(catalog.select(["socket"]).events)
    assert set(catalog.select(["+socket"]).events) == default | sockets
    assert set(catalog.select(["-lseek"]).events) == default - set(catalog.select(["lseek"]).events)


def test_a_group_holds_those_named_after_it(catalog: Catalog) -> None:
    """``metadata`` is every ``metadata-…``; ``all`` is everything."""
    groups = catalog.groups()
    parts = [set(events) for name, events in groups.items() if name.startswith("metadata-")]
    assert len(parts) == 6
    assert set(groups["metadata"]) == set().union(*parts)
    assert set(groups["all"]) == set(catalog.by_event)
    assert set(catalog.select(list(groups)).events) == set(catalog.by_event)


@pytest.mark.parametrize(
    ("token", "suggestion"),
    [
        ("sycalls", "syscalls"),
        ("+fsnyc", "fsync"),
        ("syscalls:sys_enter_stax", "syscalls:sys_enter_statx"),
        ("block:block_rq_isue", "block:block_rq_issue"),
    ],
)
def test_an_unknown_name_is_refused_with_what_comes_close(catalog: Catalog, token: str, suggestion: str) -> None:
    """A typo is reported, not ignored."""
    with pytest.raises(UsageError) as caught:
        catalog.select([token])
    assert suggestion in caught.value.remedy
    assert token.lstrip("+") in caught.value.tried


@pytest.mark.parametrize("token", ["irq:irq_handler_entry", "x", "-", "+", "--read"])
def test_what_resembles_nothing_is_refused_with_the_list(catalog: Catalog, token: str) -> None:
    """No suggestion is better than a wild one."""
    with pytest.raises(UsageError) as caught:
        catalog.select([token])
    assert caught.value.remedy


def test_nothing_left_is_refused(catalog: Catalog) -> None:
    """A recording of nothing is a mistake."""
    with pytest.raises(UsageError, match="no event is left"):
        catalog.select(["read,-read"])
