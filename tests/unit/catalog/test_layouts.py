"""Layouts of io_uring's tracepoints: the meaning of each kernel's fields, and what remains without some of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lo2io.catalog.catalog import load_catalog
from lo2io.catalog.layouts import NR_FIELDS, EventLayout, compile_layout
from lo2io.catalog.rings import RING_FIELDS
from lo2io.model import FieldLayout, Role

DATA = Path(__file__).parents[2] / "data"
CATALOG = load_catalog()
FIELD = re.compile(r"\tfield:[^;]*\b(\w+);\toffset:.*\n")
NAMES_REQUEST = {
    "5.10": "submit punt poll_arm link fail_link defer",
    "6.1": "submit refuse file_get punt poll_arm wake link fail_link defer complete",
    "6.12": "submit refuse file_get punt poll_arm wake link fail_link defer complete",
    "6.18": "submit refuse file_get punt poll_arm wake link fail_link defer complete",
}
"""Release → the roles whose samples name a request by its address."""
NAMES_USER_DATA = {
    "5.10": "submit poll_arm wake defer complete",
    "6.1": "submit refuse file_get punt poll_arm wake fail_link defer overflow complete",
    "6.12": "submit refuse file_get punt poll_arm wake fail_link defer overflow complete",
    "6.18": "submit refuse file_get punt poll_arm wake fail_link defer overflow complete",
}
"""Release → the roles whose samples name the user's number."""
ABSENT = {
    "5.10": "refuse task_work local_work overflow short_write",
    "6.1": "",
    "6.12": "",
    "6.18": "",
}
"""Release → the roles that no tracepoint of it plays."""


def short(role: Role) -> str:
    """The role's name in the TOML file."""
    return role.name.removeprefix("RING_").lower()


def formats(release: str) -> dict[str, str]:
    """The formats of a release by event."""
    files = sorted((DATA / release / "events/io_uring").glob("*/format"))
    return {f"io_uring:{file.parent.name}": file.read_text(encoding="ascii") for file in files}


def layouts(texts: dict[str, str]) -> dict[str, EventLayout]:
    """The layouts decoded from formats, by role; each role once, except those without a description."""
    events = compile_layout(tuple(texts), tuple(texts.values()), CATALOG).events
    assert all(len(event.fields) == NR_FIELDS for event in events)
    found = [(short(event.role), event) for event in events if event.role is not Role.IGNORED]
    assert len(dict(found)) == len(found)
    return dict(found)


def without(text: str, *names: str) -> str:
    """A format whose fields of these names are missing."""
    return FIELD.sub(lambda line: "" if line[1] in names else line[0], text)


def place(layout: EventLayout, role: str) -> FieldLayout | None:
    """The field of a role."""
    return layout.fields[RING_FIELDS.index(role)]


def has(layout: EventLayout, role: str) -> bool:
    """Samples of that layout have the field."""
    return place(layout, role) is not None


@pytest.mark.parametrize("release", NAMES_REQUEST)
def test_identity_is_what_the_release_gives(release: str) -> None:
    """By address where samples name one, by the user's number elsewhere; every role that is there is known."""
    found = layouts(formats(release))
    everything = {short(role) for role in Role if role.name.startswith("RING_")}
    assert everything - found.keys() == set(ABSENT[release].split())
    assert {role for role, layout in found.items() if has(layout, "req")} == set(NAMES_REQUEST[release].split())
    assert {role for role, layout in found.items() if has(layout, "user_data")} == set(NAMES_USER_DATA[release].split())
    assert {role for role, layout in found.items() if not has(layout, "ctx")} == (
        {"fail_link"} if release == "5.10" else set()
    )


def test_what_5_10_has_and_nobody_needs_is_counted_only() -> None:
    """io_uring_poll_wake and io_uring_task_run mean nothing."""
    texts = formats("5.10")
    events = compile_layout(tuple(texts), tuple(texts.values()), CATALOG).events
    ignored = {tuple(texts)[event.event] for event in events if event.role is Role.IGNORED}
    assert ignored == {"io_uring:io_uring_poll_wake", "io_uring:io_uring_task_run"}


@pytest.mark.parametrize(
    ("release", "role", "expected"),
    [
        ("5.10", "submit", {"ctx": 8, "req": 16, "opcode": 24, "user_data": 32, "flags": 40, "count2": 45}),
        ("6.1", "submit", {"ctx": 8, "req": 16, "user_data": 24, "opcode": 32, "flags": 36, "count2": 41}),
        ("6.18", "submit", {"ctx": 8, "req": 16, "user_data": 24, "opcode": 32, "flags": 40, "count2": 48}),
        ("5.10", "complete", {"ctx": 8, "user_data": 16, "result": 24, "flags": 28}),
        ("6.18", "complete", {"ctx": 8, "req": 16, "user_data": 24, "result": 32, "flags": 36}),
        ("5.10", "defer", {"ctx": 8, "req": 16, "user_data": 24}),
        ("6.18", "defer", {"ctx": 8, "req": 16, "user_data": 24, "opcode": 32}),
        ("5.10", "fail_link", {"req": 8, "other": 16}),
        ("6.18", "fail_link", {"ctx": 8, "req": 16, "user_data": 24, "opcode": 32, "other": 40}),
        ("6.18", "link", {"ctx": 8, "req": 16, "other": 24}),
        ("5.10", "file_get", {"ctx": 8, "fd": 16}),
        ("6.18", "file_get", {"ctx": 8, "req": 16, "user_data": 24, "fd": 32}),
        ("5.10", "punt", {"ctx": 8, "count": 16, "req": 24, "flags": 40}),
        ("6.18", "punt", {"ctx": 8, "req": 16, "user_data": 24, "opcode": 32, "flags": 40, "count": 56}),
        ("6.18", "poll_arm", {"ctx": 8, "req": 16, "user_data": 24, "opcode": 32, "count": 36, "count2": 40}),
        ("5.10", "wake", {"ctx": 8, "opcode": 16, "user_data": 24, "count": 32}),
        ("6.18", "wake", {"ctx": 8, "req": 16, "user_data": 24, "opcode": 32, "count": 36}),
        ("6.1", "task_work", {"ctx": 8, "count": 16}),
        ("6.18", "task_work", {"ctx": 8, "count": 16}),
        ("6.18", "local_work", {"ctx": 8, "count": 16}),
        ("6.18", "wait", {"ctx": 8, "count": 16}),
        ("6.18", "create", {"fd": 8, "ctx": 16, "count": 24, "count2": 28, "flags": 32}),
        ("5.10", "register", {"ctx": 8, "opcode": 16, "count": 20, "count2": 24, "result": 32}),
        ("6.18", "register", {"ctx": 8, "opcode": 16, "count": 20, "count2": 24, "result": 32}),
        ("6.18", "overflow", {"ctx": 8, "user_data": 16, "result": 24, "flags": 28}),
        ("6.18", "short_write", {"ctx": 8, "offset": 16, "length": 24, "result": 32}),
        (
            "6.18",
            "refuse",
            {
                "ctx": 8,
                "req": 16,
                "user_data": 24,
                "opcode": 32,
                "flags": 33,
                "offset": 40,
                "length": 56,
                "result": 88,
            },
        ),
    ],
)
def test_where_fields_lie(release: str, role: str, expected: dict[str, int]) -> None:
    """Each field at the place the release's format states, under the role that the catalog gives it."""
    layout = layouts(formats(release))[role]
    assert {
        name: field.offset
        for name, field in zip(RING_FIELDS, layout.fields[: len(RING_FIELDS)], strict=True)
        if field is not None
    } == expected


def test_results_are_signed_and_addresses_are_not() -> None:
    """-EAGAIN is no large number, and a request in the kernel's half of memory no negative one."""
    complete = layouts(formats("6.18"))["complete"]
    found = {name: place(complete, name) for name in ("ctx", "req", "user_data", "result", "flags")}
    signs = {name: field.signed for name, field in found.items() if field}
    assert signs == {"ctx": False, "req": False, "user_data": False, "result": True, "flags": False}


def test_before_5_15_submissions_name_no_request() -> None:
    """Formats as 5.10 to 5.14 had them: the user's number is all there is, in submission and completion alike."""
    texts = formats("5.10")
    for name, fields in {"submit_sqe": ("req", "flags"), "poll_arm": ("req",)}.items():
        texts[f"io_uring:io_uring_{name}"] = without(texts[f"io_uring:io_uring_{name}"], *fields)
    found = layouts(texts)
    for role in ("submit", "poll_arm", "wake", "complete"):
        assert not has(found[role], "req")
        assert has(found[role], "user_data")
    assert not has(found["submit"], "flags")
    assert has(found["punt"], "req")


def test_a_tracepoint_that_names_no_ring_means_nothing() -> None:
    """io_uring_req_failed of 5.17: an opcode was refused, but whose? Its samples are counted."""
    texts = formats("6.18")
    refused = "io_uring:io_uring_req_failed"
    texts[refused] = without(texts[refused], "ctx", "req", "user_data")
    assert "refuse" not in layouts(texts)
    assert layouts(texts).keys() == layouts(formats("6.18")).keys() - {"refuse"}


def test_a_field_may_bear_its_other_name() -> None:
    """io_uring_defer's data is user_data elsewhere."""
    texts = formats("6.18")
    texts["io_uring:io_uring_defer"] = texts["io_uring:io_uring_defer"].replace("long data;", "long user_data;")
    assert has(layouts(texts)["defer"], "user_data")


def test_calls_have_the_fields_of_batches() -> None:
    """The arguments of enter and of libaio's calls."""
    names = {"io_uring_enter": ("fd", "count", "flags", "wanted"), "io_getevents": ("count", "wanted", "context")}
    for name, roles in names.items():
        event = f"syscalls:sys_enter_{name}"
        text = (DATA / "6.18/events" / event.replace(":", "/") / "format").read_text(encoding="ascii")
        (layout,) = compile_layout((event,), (text,), CATALOG).events
        places = {"fd": 0, "count": 2, "flags": 4, "wanted": 7, "context": 8}
        assert {index for index, field in enumerate(layout.fields) if field} == {places[role] for role in roles}
