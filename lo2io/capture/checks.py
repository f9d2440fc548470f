"""Checks of a recording's options, before anything is opened."""

from __future__ import annotations

import re
import resource
from typing import TYPE_CHECKING

from lo2io.capture import waiting
from lo2io.capture.backend import check_backend
from lo2io.capture.events.opened import INHERIT, OPENERS, SYSTEM
from lo2io.capture.launch import find_program
from lo2io.errors import UsageError
from lo2io.kernel import sysfs

if TYPE_CHECKING:
    from lo2io.capture.options import RecordOptions

_CPU_LIST = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")


def check_options(options: RecordOptions) -> None:
    """Check the options before anything is opened.

    Raises:
        UsageError: Options contradict each other, or name something that does not exist.
        CommandError: The command does not exist.
    """
    if options.system:
        _check_system(options)
    elif bool(options.command) == bool(options.pids):
        raise UsageError(
            "choose what to record",
            "give either a command or processes",
            "`lo2io record -- CMD` or `lo2io record -p PID`",
        )
    elif options.cpus is not None or options.cgroup is not None:
        raise UsageError("record some CPUs or a cgroup", "only system-wide can do this", "use `lo2io system-wide`")
    elif options.command and options.duration_s is not None:
        raise UsageError("record a command for a time", "a command is recorded to its end", "leave the duration out")
    if options.until_last and (options.system or not options.command):
        remedy = "`lo2io record --until-last -- CMD`"
        raise UsageError("record until the last process has ended", "there is no command to record", remedy)
    _check_flight(options)
    if options.scope not in {None, SYSTEM, INHERIT}:
        raise UsageError(f"record with scope {options.scope}", "there is no such scope", f"use {SYSTEM} or {INHERIT}")
    check_backend(options)
    page = resource.getpagesize()
    if options.ring_bytes < page or options.ring_bytes & (options.ring_bytes - 1):
        raise UsageError(
            f"map buffers of {options.ring_bytes} bytes",
            f"a buffer's size is a power of two of at least {page}",
            "use --ring 4MiB",
        )
    if options.command:
        find_program(options.command[0])
    waiting.check_processes(options.pids)


def _check_system(options: RecordOptions) -> None:
    if options.pids:
        raise UsageError(
            "record the whole machine and processes", "the machine includes the processes", "choose one of the two"
        )
    if options.scope == INHERIT:
        raise UsageError("record the whole machine per task", "not all of its tasks are known", "leave --scope out")
    if options.user is not None and not options.command:
        raise UsageError(f"run a command as {options.user}", "there is no command", "name a command after `--`")
    if options.cgroup is not None and options.opener == OPENERS[0]:
        raise UsageError("open a cgroup's events with python-perf", "python-perf has no cgroups", "leave --opener out")
    choose_cpus(options.cpus, sysfs.read_online_cpus())


def _check_flight(options: RecordOptions) -> None:
    if options.is_flight and not options.system:
        raise UsageError(
            "keep the newest part only",
            "the list of recorded processes needs the whole recording",
            "use `lo2io system-wide`",
        )
    if options.last_s is not None and options.last_s <= 0:
        raise UsageError(f"keep the last {options.last_s:g} s", "nothing would be kept", "use --last 60s")
    if options.trigger is not None and not options.is_flight:
        raise UsageError(
            "write a window at a trigger", "this recording keeps everything", "add --last 60s or --max-size 2GiB"
        )


def choose_cpus(text: str | None, online: tuple[int, ...]) -> tuple[int, ...]:
    """The CPUs in a list; without a list, all that are online.

    Raises:
        UsageError: The text is no list, or names a CPU that is not online.
    """
    if text is None:
        return online
    shown = sysfs.format_cpu_list(online)
    if not _CPU_LIST.fullmatch(text):
        raise UsageError(
            f"read the CPUs {text!r}", "this is not a list of CPUs", f"write it like 0-3,6; online: {shown}"
        )
    cpus = tuple(sorted(set(sysfs.parse_cpu_list(text))))
    absent = [cpu for cpu in cpus if cpu not in online]
    if absent or not cpus:
        which = sysfs.format_cpu_list(absent)
        answer = f"{'CPU' if len(absent) == 1 else 'CPUs'} {which} not online" if absent else "the list has no CPU"
        raise UsageError(f"record the CPUs {text!r}", answer, f"online: {shown}")
    return cpus
