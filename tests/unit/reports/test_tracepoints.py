"""`lo2io tracepoints`: its list, its details, and its messages about a kernel that differs."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lo2io.catalog import files
from lo2io.catalog import rings as catalog_rings
from lo2io.catalog.catalog import Catalog, load_catalog
from lo2io.errors import UsageError
from lo2io.model import CallKind, Returns, Role
from lo2io.reports.tracepoints import LONE_FIELDS, Finding, check, render_check, render_list, render_show

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests/data"


@pytest.fixture
def core() -> Catalog:
    """The catalog's default part: the test data of 6.18 has exactly these formats."""
    catalog = load_catalog()
    return dataclasses.replace(
        catalog,
        calls=tuple(call for call in catalog.calls if call.core),
        tracepoints=tuple(spec for spec in catalog.tracepoints if spec.core),
    )


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """A copy of the test data's 6.18 that a test may change."""
    shutil.copytree(DATA / "6.18", tmp_path / "tracefs")
    return tmp_path / "tracefs"


def change(kernel: Path, event: str, old: str, new: str) -> None:
    """Change one format file."""
    file = kernel / "events" / event.replace(":", "/") / "format"
    text = file.read_text(encoding="ascii")
    assert old in text
    file.write_text(text.replace(old, new), encoding="ascii")


def test_the_formats_of_6_18_agree(core: Catalog, kernel: Path) -> None:
    """No remarks about the kernel of the test data."""
    assert check(core, kernel) == []


@pytest.mark.parametrize("release", ["5.10", "6.1", "6.12", "6.18"])
def test_the_block_formats_of_each_release_agree(core: Catalog, release: str) -> None:
    """The fields of requests are there in each, though elsewhere."""
    block = tuple(spec for spec in core.tracepoints if spec.group == "block")
    assert check(dataclasses.replace(core, calls=(), tracepoints=block), DATA / release) == []


def test_what_5_10_does_not_say_of_io_uring(core: Catalog) -> None:
    """Fields that came later are notes, not errors; so are missing tracepoints, unless they had another name."""
    rings = tuple(spec for spec in core.tracepoints if spec.group == "io_uring")
    findings = check(dataclasses.replace(core, calls=(), tracepoints=rings), DATA / "5.10")
    assert not any(finding.is_error for finding in findings)
    short = {(finding.event.removeprefix("io_uring:io_uring_"), finding.field) for finding in findings}
    assert short == {
        ("complete", "req"),
        ("cqe_overflow", None),
        ("defer", "opcode"),
        ("fail_link", "ctx"),
        ("fail_link", "opcode"),
        ("fail_link", "user_data"),
        ("file_get", "req"),
        ("file_get", "user_data"),
        ("local_work_run", None),
        ("queue_async_work", "opcode"),
        ("queue_async_work", "user_data"),
        ("req_failed", None),
        ("short_write", None),
        ("task_add", "req"),
        ("task_work_run", None),
    }
    assert render_check(findings).splitlines()[-1] == (
        "every format agrees; 5 calls or tracepoints are not in this kernel; "
        "10 fields are not in its formats: what they say is unknown"
    )


@pytest.mark.parametrize("release", ["6.1", "6.12"])
def test_what_newer_kernels_say_of_io_uring_is_known(core: Catalog, release: str) -> None:
    """Every field is there, in whatever type; one of the two names of the submission is enough."""
    rings = tuple(spec for spec in core.tracepoints if spec.group == "io_uring")
    assert check(dataclasses.replace(core, calls=(), tracepoints=rings), DATA / release) == []


def test_a_ring_has_to_be_named(core: Catalog, kernel: Path) -> None:
    """Without it, a completion's ring is unknown; other fields may be missing."""
    change(kernel, "io_uring:io_uring_complete", "void * ctx;", "void * ring;")
    change(kernel, "io_uring:io_uring_req_failed", "void * ctx;", "void * ring;")
    change(kernel, "io_uring:io_uring_fail_link", "void * ctx;", "void * ring;")
    assert {(finding.event, finding.field, finding.is_error) for finding in check(core, kernel)} == {
        ("io_uring:io_uring_complete", "ctx", True),
        ("io_uring:io_uring_fail_link", "ctx", False),
        ("io_uring:io_uring_req_failed", "ctx", False),
    }


def test_a_field_may_have_two_names(core: Catalog, kernel: Path) -> None:
    """Whichever the kernel uses; a missing field is reported by the first."""
    change(kernel, "io_uring:io_uring_defer", "long data;", "long user_data;")
    assert check(core, kernel) == []
    change(kernel, "io_uring:io_uring_defer", "long user_data;", "long cookie;")
    (finding,) = check(core, kernel)
    assert (finding.event, finding.field, finding.is_error) == ("io_uring:io_uring_defer", "user_data", False)


def test_neither_name_of_the_submission_is_a_note_for_both(core: Catalog, kernel: Path) -> None:
    """Only where one is there is the other not missed."""
    shutil.rmtree(kernel / "events/io_uring/io_uring_submit_req")
    assert [(finding.event, finding.is_error) for finding in check(core, kernel)] == [
        ("io_uring:io_uring_submit_req", False),
        ("io_uring:io_uring_submit_sqe", False),
    ]


@pytest.mark.parametrize(
    ("event", "old", "new", "field", "what"),
    [
        ("syscalls:sys_enter_read", "count;", "length;", "count", "the format has no such field"),
        ("syscalls:sys_enter_read", "fd;\toffset:16;\tsize:8", "fd;\toffset:16;\tsize:2", "fd", "2 bytes, not 4 or 8"),
        ("syscalls:sys_enter_read", "size_t count", "__data_loc char[] count", "count", "is an array"),
        (
            "syscalls:sys_exit_read",
            "offset:16;\tsize:8;\tsigned:1",
            "offset:16;\tsize:8;\tsigned:0",
            "ret",
            "unsigned, not signed",
        ),
        (
            "block:block_rq_issue",
            "dev_t dev;\toffset:8;\tsize:4",
            "dev_t dev;\toffset:8;\tsize:8",
            "dev",
            "8 bytes, not 4",
        ),
        ("block:block_rq_issue", "rwbs[10]", "rwbs", "rwbs", "char is no array"),
        ("io_uring:io_uring_complete", "int res;", "__data_loc int[] res;", "res", "is an array"),
        (
            "io_uring:io_uring_file_get",
            "int fd;\toffset:32;\tsize:4;\tsigned:1",
            "int fd;\toffset:32;\tsize:4;\tsigned:0",
            "fd",
            "unsigned, not signed",
        ),
        (
            "block:block_rq_complete",
            "int error;\toffset:28;\tsize:4;\tsigned:1",
            "int error;\toffset:28;\tsize:4;\tsigned:0",
            "error",
            "unsigned, not signed",
        ),
    ],
)
def test_a_field_that_differs_is_an_error(
    core: Catalog, kernel: Path, *, event: str, old: str, new: str, field: str, what: str
) -> None:
    """Missing, of another size, of another sign, array or not: samples would be misread."""
    change(kernel, event, old, new)
    (finding,) = check(core, kernel)
    assert (finding.event, finding.field, finding.is_error) == (event, field, True)
    assert what in finding.what


@pytest.mark.parametrize(
    ("old", "new", "field", "what"),
    [
        ("pid", "pid", None, None),
        ("__data_loc char[] dst_path", "char dst_path[64]", "path", "char[64] is no __data_loc"),
        ("int pid;\toffset:24;\tsize:4;\tsigned:1", "int pid;\toffset:24;\tsize:4;\tsigned:0", "tid", "unsigned"),
        ("int dst_root", "__data_loc int[] dst_root", "hierarchy", "__data_loc int[] is an array"),
    ],
)
def test_tracepoints_that_stand_alone_are_compared_too(
    kernel: Path, old: str, new: str, field: str | None, what: str | None
) -> None:
    """The fields of cgroup_attach_task."""
    catalog = load_catalog()
    spec = next(spec for spec in catalog.tracepoints if spec.role is Role.CGROUP_ATTACH)
    change(kernel, spec.event, old, new)
    findings = check(dataclasses.replace(catalog, calls=(), tracepoints=(spec,)), kernel)
    if field is None or what is None:
        assert findings == []
        return
    (finding,) = findings
    assert (finding.field, finding.is_error) == (spec.fields[field], True)
    assert what in finding.what


def test_every_field_of_the_catalog_can_be_compared() -> None:
    """Each single tracepoint describes its fields, so that the comparison covers all."""
    assert {role: set(fields) for role, fields in LONE_FIELDS.items()} == {
        role: set(fields) for role, fields in (files.LONE_FIELDS | catalog_rings.RING_ROLE_FIELDS).items()
    }


def test_a_missing_call_is_a_note(core: Catalog, kernel: Path) -> None:
    """Older kernels lack newer calls; said once for both halves."""
    shutil.rmtree(kernel / "events/syscalls/sys_enter_openat2")
    shutil.rmtree(kernel / "events/syscalls/sys_exit_openat2")
    assert check(core, kernel) == [
        Finding("syscalls:sys_enter_openat2", None, is_error=False, what="this kernel does not have the call")
    ]


def test_half_a_call_is_an_error(core: Catalog, kernel: Path) -> None:
    """An entry without an exit cannot be paired."""
    shutil.rmtree(kernel / "events/syscalls/sys_exit_read")
    (finding,) = check(core, kernel)
    assert finding.event == "syscalls:sys_exit_read"
    assert finding.is_error


def test_a_missing_tracepoint_is_an_error_unless_optional(core: Catalog, kernel: Path) -> None:
    """Without issue there are no requests; without merge there are."""
    shutil.rmtree(kernel / "events/block/block_rq_issue")
    shutil.rmtree(kernel / "events/block/block_rq_merge")
    assert {finding.event: finding.is_error for finding in check(core, kernel)} == {
        "block:block_rq_issue": True,
        "block:block_rq_merge": False,
    }


def test_a_kernel_without_syscall_tracepoints_is_told_once(core: Catalog, kernel: Path) -> None:
    """Not 34 notes, but the missing configuration."""
    shutil.rmtree(kernel / "events/syscalls")
    (finding,) = check(core, kernel)
    assert finding.is_error
    assert "CONFIG_FTRACE_SYSCALLS" in finding.what


def test_findings_as_text_and_json() -> None:
    """Errors first, a verdict last; the same as JSON."""
    note = Finding("syscalls:sys_enter_x", None, is_error=False, what="this kernel does not have the call")
    error = Finding("block:block_rq_issue", "dev", is_error=True, what="8 bytes, not 4")
    assert render_check([note, error]).splitlines() == [
        "error  block:block_rq_issue field dev: 8 bytes, not 4",
        "note   syscalls:sys_enter_x: this kernel does not have the call",
        "1 difference: samples would be misread; 1 call or tracepoint is not in this kernel",
    ]
    assert render_check([]) == "every format agrees"
    assert json.loads(render_check([error], json=True)) == [
        {"event": "block:block_rq_issue", "field": "dev", "is_error": True, "what": "8 bytes, not 4"}
    ]


def test_listing_all_and_some() -> None:
    """By group, the core marked, chosen as --events chooses."""
    catalog = load_catalog()
    everything = (*catalog.calls, *catalog.tracepoints)
    lines = render_list(catalog).splitlines()
    assert sum(line.startswith(("  * ", "    ")) for line in lines) == len(everything)
    assert lines[-2] == f"{len(catalog.opcodes)} opcodes of io_uring: `lo2io tracepoints show opcodes`"
    assert sum(line.startswith("  * ") for line in lines) == sum(spec.core for spec in everything)
    assert "metadata (" in lines[-1]
    some = render_list(catalog, ("seek,socket", "-bind")).splitlines()
    assert some[:2] == ["seek", f"  * {'lseek':17}Moves the file position; whence 0 SET, 1 CUR, 2 END, 3 DATA, 4 HOLE."]
    assert not any("bind" in line for line in some)
    with pytest.raises(UsageError):
        render_list(catalog, ("sock",))


def test_listing_as_json() -> None:
    """Every fact of the files by its key."""
    (fact,) = json.loads(render_list(load_catalog(), ("sys_pwritev2",), json=True))
    assert fact == {
        "name": "pwritev2",
        "abi_name": "pwritev2",
        "events": ["syscalls:sys_enter_pwritev2", "syscalls:sys_exit_pwritev2"],
        "kind": "write",
        "returns": "bytes",
        "io_mode": "write",
        "region_role": "file_io",
        "vectored": True,
        "fixed_flags": None,
        "fd_unless": 0,
        "class": "write",
        "waits": False,
        "waits_if": 0,
        "synced_if": 6,
        "accounts": ["write"],
        "reads_first": False,
        "ends_many": False,
        "only_slept": False,
        "group": "write",
        "default": True,
        "fields": {"fd": "fd", "count": "vlen", "offset": "pos_l", "flags": "flags", "vector": "vec"},
        "summary": "pwritev with RWF_* flags; offset -1 means at the file position, moving it.",
    }
    everything = (*load_catalog().calls, *load_catalog().tracepoints)
    assert len(json.loads(render_list(load_catalog(), json=True))) == len(everything)


def test_showing_a_call_and_a_tracepoint() -> None:
    """Roles, fields and what their numbers say."""
    catalog = load_catalog()
    call = render_show(catalog, "preadv")
    assert "field vlen: a number of vectors, not bytes" in call
    assert "syscalls:sys_enter_preadv, syscalls:sys_exit_preadv" in call
    assert "always 0o1101" in render_show(catalog, "creat")
    assert "in reports    class process, waits if flags have 0x4000" in render_show(catalog, "clone")
    assert "in reports    class lock, waits for others" in render_show(catalog, "flock")
    assert "counts of read and write" in render_show(catalog, "sendfile")
    assert "read when the call begins" in render_show(catalog, "execve")
    merge = render_show(catalog, "block:block_rq_merge")
    assert "merge of a request, optional" in merge
    assert "field sector: sectors of 512 bytes" in merge
    assert 'rwbs ~ "F*", applied by the kernel' in render_show(catalog, "block:block_bio_queue")
    assert len(render_show(catalog, "block").split("\n\n")) == 7
    assert "cgroup_attach, optional" in render_show(catalog, "cgroup")
    assert "field dst_path" in render_show(catalog, "cgroup:cgroup_attach_task")
    assert json.loads(render_show(catalog, "block:block_rq_merge", json=True))[0]["role"] == "merge"
    assert "complete of a ring_request, optional" in render_show(catalog, "io_uring:io_uring_complete")
    assert "complete of a request\n" in render_show(catalog, "block:block_rq_complete")
    assert "newer name  io_uring:io_uring_submit_req" in render_show(catalog, "io_uring:io_uring_submit_sqe")
    assert "field user_data or data" in render_show(catalog, "io_uring:io_uring_defer")
    (defer,) = json.loads(render_show(catalog, "io_uring:io_uring_defer", json=True))
    assert (defer["operation"], defer["newer"], defer["other_names"]) == ("ring_request", None, {"user_data": ["data"]})
    with pytest.raises(UsageError):
        render_show(catalog, "preed")


def test_showing_opcodes() -> None:
    """One by the kernel's name or by the programs', or all."""
    catalog = load_catalog()
    line = "  4  READ_FIXED  read, returns bytes    Reads into a registered buffer."
    assert render_show(catalog, "READ_FIXED") == render_show(catalog, "IORING_OP_READ_FIXED") == line
    assert len(render_show(catalog, "opcodes").splitlines()) == len(catalog.opcodes)
    assert json.loads(render_show(catalog, "FSYNC", json=True)) == [
        {
            "number": 3,
            "name": "FSYNC",
            "kind": "sync",
            "returns": "zero",
            "io_mode": "flush",
            "summary": "fsync or, by its flags, fdatasync.",
            "traits": ["file", "looks_up", "range"],
        }
    ]
    assert "group  " in render_show(catalog, "fsync")


def load_script(name: str) -> ModuleType:
    """A script as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"scripts/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_current() -> None:
    """docs/reference/tracepoints.md is what its script makes of the TOML files."""
    script = load_script("reference_tracepoints")
    assert script.OUTPUT.read_text(encoding="utf-8") == script.page(load_catalog())


def test_the_file_format_is_documented() -> None:
    """Every key, kind, role and decoder a file may hold has its place in docs/reference/tracepoint-files.md."""
    text = (ROOT / "docs/reference/tracepoint-files.md").read_text(encoding="utf-8")
    accepted = {
        *files.CALL_ROLES,
        *files.REQUEST_ROLES,
        *files.IO_MODES,
        *files.REGION_ROLES,
        *files.EVENT_ROLES,
        *files.DECODERS,
        *catalog_rings.RING_FIELDS,
        *(kind.name.lower() for kind in CallKind),
        *(kind.name.lower() for kind in Returns),
    }
    assert [name for name in sorted(accepted) if f"`{name}`" not in text] == []
