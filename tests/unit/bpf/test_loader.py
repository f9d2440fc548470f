"""Loading the programs, as far as that needs no rights: structures, refusals, the package's content."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lo2io.native._lib import ffi, lib
from reference.kernel_records import iter_records

from lo2io.bpf import libbpf, loader
from lo2io.bpf.samples import BpfSample
from lo2io.catalog.call_numbers import NO_NUMBER, call_number
from lo2io.catalog.catalog import load_catalog
from lo2io.errors import AccessError, CaptureError
from lo2io.model.layers import WAITS
from lo2io.native.records import unpack

NOTHING = loader.BpfConfig(recorder=1)
CALL = loader.BpfCall(enter_event=7, exit_event=8, enter_index=0, exit_index=1, flags=0, nr_args=4)


@pytest.mark.skipif(not loader.OBJECT.exists(), reason="built without kernel programs")
@pytest.mark.parametrize(
    ("name", "struct"),
    [
        (".rodata.lo2io", "struct lo2_bpf_told"),
        (".data.lo2io", "struct lo2_bpf_switch"),
        ("lo2_cpus", "struct lo2_bpf_cpu"),
        ("lo2_selected", "struct lo2_bpf_selected"),
    ],
)
def test_structures_are_as_large_as_in_the_programs(name: str, struct: str) -> None:
    """Clang lays them out for BPF as the C compiler does for this machine."""
    programs = libbpf.BpfObject(loader.OBJECT.read_bytes())
    try:
        assert programs.value_bytes(name) == ffi.sizeof(struct)
    finally:
        programs.close()


@pytest.mark.skipif(not loader.OBJECT.exists(), reason="built without kernel programs")
def test_a_section_of_data_has_its_size() -> None:
    """A value of another size is refused."""
    programs = libbpf.BpfObject(loader.OBJECT.read_bytes())
    try:
        size = programs.value_bytes(".rodata.lo2io")
        programs.set_value(".rodata.lo2io", bytes(size))
        with pytest.raises(OSError, match="Invalid argument"):
            programs.set_value(".rodata.lo2io", bytes(size - 1))
    finally:
        programs.close()


def test_what_is_told_lies_where_the_programs_look() -> None:
    """A call's number leads to its place, and its place to its configuration."""
    calls = [CALL, loader.BpfCall(9, 10, 2, 3, lib.LO2_CALL_CLOSES, 1, fd=1, number=3)]
    told = ffi.from_buffer(
        "struct lo2_bpf_told *", loader.tell(loader.BpfConfig(recorder=77, devices=(8 << 20,)), calls, 4096)
    )
    assert (told.config.recorder, told.config.nr_devices, told.config.devices[0]) == (77, 1, 8 << 20)
    assert (told.config.ring_bytes, told.config.ring_mask) == (4096, 4095)
    assert (told.calls[1].flags, told.calls[1].fd, told.calls[1].exit_index) == (lib.LO2_CALL_CLOSES, 1, 3)
    assert {number: place for number, place in enumerate(told.of_number) if place} == {3: 2}
    assert [number for number, wanted in enumerate(told.wanted) if wanted] == [3]
    told = ffi.from_buffer("struct lo2_bpf_told *", loader.tell(loader.BpfConfig(recorder=1, calls=False), calls, 4096))
    assert not any(told.of_number)  # facts alone come from the events that are open anyway


def test_a_number_is_wanted_if_a_call_of_either_kind_has_it() -> None:
    """Of 64 bits, of 32 bits, or the one number that all calls of sockets of 32 bits share."""
    known = {call.name: call for call in load_catalog().calls}
    compat = known["recvfrom"].compat
    assert {each.is_socketcall for each in compat} == {True, False}
    call = loader.BpfCall(9, 10, 0, 1, 0, 6, number=45, compat=compat)
    told = ffi.from_buffer("struct lo2_bpf_told *", loader.tell(NOTHING, [call], 4096))
    own = {each.number for each in compat if not each.is_socketcall}
    assert {number for number, wanted in enumerate(told.wanted) if wanted} == {45, 102} | own


def test_more_than_the_programs_hold_is_refused() -> None:
    """17 devices, where there is room for 16: nothing is cut silently."""
    with pytest.raises(CaptureError, match="there are too many calls or devices"):
        loader.tell(loader.BpfConfig(recorder=1, devices=tuple(range(17))), [CALL], 4096)


def test_a_package_without_the_object_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The package was built without clang."""
    monkeypatch.setattr(loader, "OBJECT", tmp_path / "lo2io.bpf.o")
    with pytest.raises(AccessError, match="built without them") as caught:
        loader.load_programs(NOTHING, [CALL], [0], 4096)
    assert "clang" in caught.value.remedy


def test_a_kernel_without_types_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without BTF, the places of the kernel's fields are unknown."""
    monkeypatch.setattr(loader, "OBJECT", Path(__file__))
    monkeypatch.setattr(loader, "ROOT", tmp_path)
    with pytest.raises(AccessError, match="does not describe its types"):
        loader.load_programs(NOTHING, [CALL], [0], 4096)


def test_without_the_library_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing library is the user's to install."""
    monkeypatch.setattr(libbpf, "LIBRARY", "libnosuch.so.1")
    with pytest.raises(AccessError, match="load libbpf") as caught:
        libbpf.library.__wrapped__()
    assert "libbpf1" in caught.value.remedy


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ([], ""),
        (["libbpf: R1 invalid mem access 'scalar'", "libbpf: processed 12 insns (limit 1000000)"], "R1 invalid mem"),
        (["libbpf: Error in btf", "libbpf: failed to load object 'x'"], "Error in btf"),
    ],
)
def test_the_verifiers_complaint_is_what_is_told(monkeypatch: pytest.MonkeyPatch, said: list[str], words: str) -> None:
    """Neither its statistics, nor that loading failed, which is known."""
    monkeypatch.setattr(libbpf, "_messages", lambda: "\n".join(said))
    assert libbpf.last_words().startswith(words)
    assert bool(libbpf.last_words()) == bool(words)


def test_every_call_of_the_catalog_has_a_number() -> None:
    """On x86-64 all have one; elsewhere some are seen through perf events."""
    calls = {call.name: call for call in load_catalog().calls}
    assert [name for name, call in calls.items() if call_number(call, "x86_64") == NO_NUMBER] == []
    known = [call for call in calls.values() if call_number(call, "aarch64") != NO_NUMBER]
    assert len(known) > len(calls) / 2
    assert [call_number(calls["openat"], machine) for machine in ("x86_64", "aarch64", "vax")] == [257, 56, NO_NUMBER]


def test_calls_need_events_where_their_number_is_not_known() -> None:
    """The raw pair sees other calls, unless each is seen singly. Facts alone need the events of their samples."""
    calls = [CALL, loader.BpfCall(9, 10, 2, 3, 0, 1, number=3)]
    for changes, expected in (({}, [True, False]), ({"calls": False}, [True, True]), ({"single": True}, [True, True])):
        programs: Any = loader.Programs(loader.BpfConfig(recorder=1, **changes), [0], 4096)
        programs._calls = calls
        assert [programs.needs_event(place) for place in range(2)] == expected


@pytest.mark.parametrize(
    ("numbered", "pairs", "raw"),
    [((True, True), False, True), ((True, False), True, True), ((False, False), True, False)],
)
def test_programs_that_no_call_needs_are_left_out(numbered: tuple[bool, ...], pairs: bool, raw: bool) -> None:
    """Those of perf events' pairs, if each call has a number; the raw pair, if none has one."""
    programs: Any = loader.Programs(loader.BpfConfig(recorder=1), [0], 4096)
    other = loader.BpfCall(9, 10, 2, 3, 0, 1, number=3)
    programs._calls = [other if known else CALL for known in numbered]
    unused = programs._unused()
    assert {loader._ENTER, loader._EXIT} <= unused if not pairs else not {loader._ENTER, loader._EXIT} & unused
    calls = set(loader._CALLS.values())
    assert not calls & unused if raw else calls <= unused


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("waits", [False, True])
def test_one_program_runs_at_each_switch(recorded: bool, waits: bool) -> None:
    """The one that records switches does the work of the others, too."""
    samples = (BpfSample("sched:sched_switch", 5),) if recorded else ()
    layers = (WAITS,) if waits else ()
    programs: Any = loader.Programs(loader.BpfConfig(recorder=1, samples=samples, layers=layers), [0], 4096)
    programs.samples, programs.layers = samples, layers
    run = [*programs._attached().items(), *programs._of_layers()]
    expected = "lo2_on_sched_switch" if recorded else "lo2_waits_sched_switch" if waits else "lo2_switch_task"
    assert [program for name, program in run if name == "sched_switch"] == [expected]
    assert ("lo2_waits_sched_waking" in dict(run).values()) == waits
    every = {"lo2_on_sched_switch", "lo2_waits_sched_switch", "lo2_switch_task"}
    assert every - programs._unused() == {expected}


def test_the_end_of_what_libbpf_says_is_kept() -> None:
    """64 KiB less the byte that ends it, without information for developers."""
    address = int(ffi.cast("uintptr_t", lib.lo2_libbpf_keeper()))
    keep = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(address)
    none = ctypes.create_string_buffer(64)  # a va_list without arguments
    lib.lo2_libbpf_forget()
    for level, text in ((0, b"first\n"), (1, b"information\n"), (0, b"second\n")):
        keep(level, text, none)
    assert ffi.string(lib.lo2_libbpf_messages()) == b"first\nsecond\n"
    keep(0, b"b" + b"x" * (65_535 - 3) + b"end", none)
    assert ffi.string(lib.lo2_libbpf_messages()) == b"x" * (65_535 - 3) + b"end"
    keep(0, b"yz", none)
    assert ffi.string(lib.lo2_libbpf_messages()) == b"x" * (65_535 - 5) + b"endyz"
    lib.lo2_libbpf_forget()
    assert ffi.string(lib.lo2_libbpf_messages()) == b""


@pytest.mark.parametrize("knows_batches", [True, False])
def test_maps_are_put_at_once_or_else_one_by_one(knows_batches: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that takes no batch of maps waits for each of them."""
    put: dict[int, int] = {}

    def batch(_fd: int, keys: Any, values: Any, number: Any, _options: object) -> int:
        if not knows_batches:
            return -524  # ENOTSUPP
        put.update(zip(keys, values, strict=True))
        assert number._obj.value == len(put)
        return 0

    def one(_fd: int, key: Any, value: Any, _flags: int) -> int:
        assert not knows_batches
        put[key._obj.value] = value._obj.value
        return 0

    fake = SimpleNamespace(bpf_map_update_batch=batch, bpf_map_update_elem=one)
    monkeypatch.setattr(libbpf, "library", lambda: fake)
    libbpf.put_fds(9, {0: 31, 1: 32, 64: 33})
    assert put == {0: 31, 1: 32, 64: 33}


class CpuMemory:
    """A CPU's memory and a buffer, which programs of the test's own have written: :meth:`count` reads them."""

    def __init__(self) -> None:
        self.cpu = ffi.new("struct lo2_bpf_cpu *")
        self.memory = bytearray(lib.LO2_BUFFER_HEAD)
        self.buffer = ffi.from_buffer("struct lo2_bpf_buffer *", self.memory)
        self.programs = loader.Programs(NOTHING, (0,), 4096)
        self.programs._calls, self.programs._nr_events = (CALL,), 2
        self.programs._cpu = lambda _: self.cpu  # type: ignore[method-assign]

    def count(self, counters: dict[int, list[int]] | None = None, *, of_samples: bool = False) -> tuple[int, list[Any]]:
        """As the recorder does at a border."""
        memory: Any = self.memory
        return self.programs.count_records(0, memory, counters or {}, of_samples=of_samples)


def test_the_counts_at_a_place_are_those_of_the_records_before_it() -> None:
    """Without what the filter left out, and without the call that has no record yet."""
    of = CpuMemory()
    of.buffer.taken = 640
    of.cpu.counts[0].count, of.cpu.counts[0].left_out, of.cpu.counts[0].lost = 12, 3, 2
    of.cpu.counts[1].count = 7
    of.cpu.sampling.counts[5].count = 9
    assert of.count() == (640, [loader.CountsAt(9, 0, 2), loader.CountsAt(7, 0, 0)])
    of.cpu.slot.occupied = 1
    assert of.count()[1] == [loader.CountsAt(8, 0, 2), loader.CountsAt(7, 0, 0)]
    position, events = of.count(of_samples=True)
    assert (position, len(events), events[5]) == (640, lib.LO2_MAX_SAMPLED, loader.CountsAt(9, 0, 0))


def test_a_count_of_perf_replaces_the_programs(tmp_path: Path) -> None:
    """The sum of all perf events that have counted on this CPU."""
    of = CpuMemory()
    of.cpu.sampling.counts[5].count = 9
    with (tmp_path / "count").open("w+b") as file:
        file.write(struct.pack("<QQ", 11, 1) * 2)
        file.flush()
        file.seek(0)
        assert of.count({5: [file.fileno(), file.fileno()]}, of_samples=True)[1][5] == loader.CountsAt(22, 0, 0)
        with pytest.raises(CaptureError, match="read an event's count"):
            of.count({5: [file.fileno()]}, of_samples=True)


@pytest.mark.parametrize("at_work", ["call", "layer", "event"])
def test_no_place_is_found_while_a_program_is_at_work(at_work: str) -> None:
    """It may have counted an event that has no record yet."""
    of = CpuMemory()
    if at_work == "call":
        of.cpu.busy = 1
    elif at_work == "layer":
        of.buffer.taken = 1 << lib.LO2_WRITERS_SHIFT
    else:
        of.buffer.writing[lib.LO2_MAX_SAMPLED - 1] = 1
    with pytest.raises(BlockingIOError):
        of.count(of_samples=at_work != "call")


def test_counts_that_never_stand_still_have_bounds() -> None:
    """The true count and the true losses lie within."""
    before, after = (SimpleNamespace(count=count, lost=lost, left_out=1) for count, lost in ((100, 5), (120, 8)))
    at = loader.CountsAt.between(before, after)
    assert (at.count, at.count + at.slack, at.lost) == (100 - 1 - 3 - 4, 120 - 1, 5)
    assert at.counted_by_perf(200) == loader.CountsAt(200 - at.slack, 2 * at.slack, 5)


def test_losses_are_told_once() -> None:
    """By the recorder, or by the next program that finds room."""
    of = CpuMemory()
    of.cpu.losing.lost, of.cpu.losing.begin_ns, of.cpu.losing.end_ns = 6, 100, 200
    (record,) = iter_records(of.programs.take_losses(0, of_samples=False))
    told = unpack("lost", record)
    assert (told.head.time_ns, told.begin_ns, told.lost) == (200, 100, 6)
    assert of.programs.take_losses(0, of_samples=False) == b""
    assert of.cpu.losing.lost == 0


def test_a_stack_ends_before_what_is_no_address_of_code() -> None:
    """Without frame pointers, the kernel takes any word of the stack for one. Build ids of 20 bytes have names."""
    stack = ffi.new("struct lo2_bpf_user_stack *", {"frames": 4, "top": 5, "beside": 6})
    for place, offset in enumerate((0x10, (1 << 63) - 1, 1 << 63, 0x40)):
        stack.at[place].offset = offset
    stack.at[1].status, stack.at[1].build_id = lib.LO2_FRAME_VALID, bytes(range(20))
    found = loader.user_stack(7, stack)
    assert (found.stack, found.offsets) == (7, (0x10, (1 << 63) - 1))
    assert found.build_ids == ("", bytes(range(20)).hex())
