"""Faults of a recording's options, found before anything is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lo2io.capture.checks import check_options, choose_cpus
from lo2io.capture.notices import NOTICES_KEPT, Notices
from lo2io.capture.options import RecordOptions
from lo2io.errors import UsageError
from lo2io.kernel.sysfs import format_cpu_list, parse_cpu_list
from lo2io.model.notices import Notice


@pytest.mark.parametrize(("cpus", "text"), [((), ""), ((3,), "3"), ((0, 1, 2, 5, 7, 8), "0-2,5,7-8"), ((2, 0), "0,2")])
def test_lists_of_cpus(cpus: tuple[int, ...], text: str) -> None:
    """In the kernel's form, and read again."""
    assert format_cpu_list(cpus) == text
    assert parse_cpu_list(text) == tuple(sorted(cpus))


@pytest.mark.parametrize(
    ("text", "cpus"), [(None, (0, 1, 4)), ("4", (4,)), ("0-1,4", (0, 1, 4)), ("4,0,4", (0, 4)), ("1-1", (1,))]
)
def test_chosen_cpus(text: str | None, cpus: tuple[int, ...]) -> None:
    """Each once, ascending; all without a list."""
    assert choose_cpus(text, (0, 1, 4)) == cpus


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("2", "CPU 2 not online"),
        ("0-5", "CPUs 2-3,5 not online"),
        ("4-0", "the list has no CPU"),
        ("", "this is not a list of CPUs"),
        ("0,", "this is not a list of CPUs"),
        ("0-", "this is not a list of CPUs"),
        ("-1", "this is not a list of CPUs"),
        ("all", "this is not a list of CPUs"),
        ("0 1", "this is not a list of CPUs"),
    ],
)
def test_wrong_cpus(text: str, answer: str) -> None:
    """The answer names those that are online."""
    with pytest.raises(UsageError) as caught:
        choose_cpus(text, (0, 1, 4))
    assert caught.value.answer == answer
    assert "online: 0-1,4" in caught.value.remedy


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        ({}, "either a command or processes"),
        ({"command": ("true",), "pids": (1,)}, "either a command or processes"),
        ({"command": ("true",), "duration_s": 1.0}, "a command is recorded to its end"),
        ({"pids": (1,), "until_last": True}, "there is no command to record"),
        ({"command": ("true",), "system": True, "until_last": True}, "there is no command to record"),
        ({"command": ("true",), "cpus": "0"}, "only system-wide can do this"),
        ({"command": ("true",), "cgroup": "/a"}, "only system-wide can do this"),
        ({"system": True, "pids": (1,)}, "the machine includes the processes"),
        ({"system": True, "scope": "inherit"}, "not all of its tasks are known"),
        ({"system": True, "user": "root"}, "there is no command"),
        ({"system": True, "cgroup": "/", "opener": "python-perf"}, "python-perf has no cgroups"),
        ({"system": True, "ring_bytes": 12345}, "a buffer's size is a power of two of at least"),
        ({"system": True, "cpus": "100000"}, "CPU 100000 not online"),
    ],
)
def test_contradictions(options: dict[str, Any], answer: str) -> None:
    """Each has its own message."""
    with pytest.raises(UsageError) as caught:
        check_options(RecordOptions(Path("spool"), ("block:block_rq_issue",), **options))
    assert answer in caught.value.answer


@pytest.mark.parametrize("options", [{}, {"command": ("true",), "duration_s": 3.0, "user": "root"}, {"cpus": "0"}])
def test_what_goes_together(options: dict[str, Any]) -> None:
    """The whole machine, with a command or without."""
    check_options(RecordOptions(Path("spool"), ("block:block_rq_issue",), system=True, **options))


def test_of_very_many_notices_the_first_and_the_last_are_kept() -> None:
    """A flight recorder of many days tells each window; all are passed on, the spool's description stays small."""
    told: list[Notice] = []
    notices = Notices(told.append)
    for number in range(NOTICES_KEPT * 2):
        notices(Notice(str(number)))
    assert notices.texts == tuple(notice.text for notice in told)
    for number in range(1000):
        notices(Notice(f"later {number}"))
    assert len(told) == 1000 + NOTICES_KEPT * 2
    texts = [notice.text for notice in told]
    assert notices.texts == (*texts[:NOTICES_KEPT], "1000 further notices are not kept", *texts[-NOTICES_KEPT:])
