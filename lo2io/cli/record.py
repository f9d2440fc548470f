"""The commands that record: a program, running processes, or the whole machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from lo2io.cli.options import (
    AllCpus,
    AttachDuration,
    Backend,
    BlockRecords,
    Cgroup,
    Command,
    Convert,
    Cpus,
    Duration,
    Events,
    Filter,
    Force,
    Json,
    KeepSpool,
    Last,
    MaxSize,
    Names,
    Opener,
    Output,
    Pids,
    Quiet,
    Ring,
    Sample,
    Sched,
    Scope,
    Trigger,
    UntilLast,
    User,
    parse_rate,
    parse_seconds,
    parse_size,
    print_completeness,
    print_summary,
    progress_bar,
    say,
    status_line,
)

if TYPE_CHECKING:
    from lo2io.pipeline import RecordRequest


def record(
    command: Command = None,
    output: Output = None,
    pids: Pids = None,
    events: Events = None,
    duration: AttachDuration = None,
    until_last: UntilLast = False,
    filters: Filter = None,
    user: User = None,
    ring: Ring = None,
    backend: Backend = None,
    names: Names = None,
    opener: Opener = None,
    scope: Scope = None,
    block_records: BlockRecords = None,
    sched: Sched = False,
    sample: Sample = None,
    force: Force = False,
    keep_spool: KeepSpool = False,
    convert: Convert = True,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Record the I/O of a command, or of running processes.

    All their threads and children are recorded, too.
    """
    from lo2io.pipeline import RecordRequest

    request = RecordRequest(
        command=tuple(command or ()),
        pids=tuple(pids or ()),
        output=output,
        events=tuple(events or ()),
        duration_s=parse_seconds(duration),
        until_last=until_last,
        filter=tuple(filters or ()),
        user=user,
        ring_bytes=parse_size(ring),
        backend=backend,
        names=names,
        opener=opener,
        scope=scope,
        block_records=block_records,
        sched=sched,
        sample_rate=parse_rate(sample),
        force=force,
        keep_spool=keep_spool,
        convert=convert,
    )
    _record(request, quiet=quiet, as_json=as_json)


def system_wide(
    command: Command = None,
    all_cpus: AllCpus = False,  # noqa: ARG001 - as perf has it, and what this command does anyway
    output: Output = None,
    events: Events = None,
    duration: Duration = None,
    cpus: Cpus = None,
    cgroup: Cgroup = None,
    filters: Filter = None,
    last: Last = None,
    max_size: MaxSize = None,
    trigger: Trigger = None,
    user: User = None,
    ring: Ring = None,
    backend: Backend = None,
    names: Names = None,
    opener: Opener = None,
    block_records: BlockRecords = None,
    sched: Sched = False,
    sample: Sample = None,
    force: Force = False,
    keep_spool: KeepSpool = False,
    convert: Convert = True,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Record the I/O of the whole machine.

    Recording ends with Ctrl-C, SIGTERM, after --duration, or when CMD ends.
    """
    from lo2io.pipeline import RecordRequest

    request = RecordRequest(
        system=True,
        command=tuple(command or ()),
        output=output,
        events=tuple(events or ()),
        duration_s=parse_seconds(duration),
        cpus=cpus,
        cgroup=cgroup,
        filter=tuple(filters or ()),
        last_s=parse_seconds(last),
        max_bytes=parse_size(max_size),
        trigger=trigger,
        user=user,
        ring_bytes=parse_size(ring),
        backend=backend,
        names=names,
        opener=opener,
        block_records=block_records,
        sched=sched,
        sample_rate=parse_rate(sample),
        force=force,
        keep_spool=keep_spool,
        convert=convert,
    )
    _record(request, quiet=quiet, as_json=as_json)


def _record(request: RecordRequest, *, quiet: bool, as_json: bool) -> None:
    """Record, then say what came of it."""
    from lo2io import pipeline

    line = status_line(quiet=quiet)
    recorded = pipeline.record(
        request, say(quiet=quiet, line=line), progress_bar, say(quiet=False, line=line), line.show if line else None
    )
    if recorded.converted and (as_json or not quiet):
        print_summary(recorded.converted.trace, as_json=as_json, to_stdout=as_json)
    if recorded.converted and quiet:
        print_completeness(recorded.converted)
    raise typer.Exit(recorded.exit_code)
