"""The layers between a call and the disk: what lo2io's programs in the kernel tell beside the wanted events."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

NONE, ALL = "none", "all"
"""Names that stand for no layer, and for every layer."""


class Layer(NamedTuple):
    """What one layer tells, and where its programs run."""

    name: str
    """Its name for ``--layers``. The program at the tracepoint ``s:event`` is ``lo2_NAME_event``."""
    tells: str
    """What the layer tells, as the end of "records …"."""
    tracepoints: tuple[str, ...]
    """Tracepoints that must exist; programs run there."""
    among_events: bool = False
    """True: its records lie in the buffers of events; else in those of calls."""
    optional: tuple[str, ...] = ()
    """Further tracepoints where programs run, if the kernel has them."""
    by_default: bool = True
    """True: the layer is recorded unless the user leaves it out."""
    typed: bool = True
    """True: its programs are tied to types of the kernel itself; False: the tracepoints may be a module's."""

    @property
    def programs(self) -> dict[str, str]:
        """Tracepoint, without its subsystem → the program that runs there."""
        events = [tracepoint.partition(":")[2] for tracepoint in (*self.tracepoints, *self.optional)]
        return {event: f"lo2_{self.name}_{event}" for event in events}


COMMITS = tuple(
    f"jbd2:jbd2_{moment}"
    for moment in ("start_commit", "commit_locking", "commit_flushing", "commit_logging", "end_commit")
)
LOCKS = ("lock:contention_begin", "lock:contention_end")
WAITS, WORKERS, JOURNAL, FAULTS, STACKS, FUSE = "waits", "workers", "journal", "faults", "stacks", "fuse"
STACK_FROM_NS = 50_000
"""The layer ``waits`` takes the kernel stack of sleeps that last this long. A stack costs 5 µs."""
SLOW_FROM_NS = 1_000_000
"""The layer ``stacks`` takes the program's stack in calls that last this long."""
_LAYERS: tuple[Layer, ...] = (
    Layer(
        "parts",
        "which file, and which bytes of it, each block request carries",
        ("block:block_rq_issue",),
        among_events=True,
    ),
    Layer(
        "cache",
        "which reads the page cache served, and who filled it",
        ("filemap:mm_filemap_add_to_page_cache", "filemap:mm_filemap_delete_from_page_cache"),
        among_events=True,
    ),
    Layer(
        "dirty",
        "who dirtied the pages that the disk writes, and why they are written back",
        ("writeback:writeback_dirty_folio", "writeback:writeback_start", "writeback:writeback_pages_written"),
        among_events=True,
    ),
    Layer(
        FUSE,
        "what FUSE file systems ask their servers, and how long these take",
        ("fuse:fuse_request_send", "fuse:fuse_request_end"),
        among_events=True,
    ),
    Layer(WAITS, "where the time of each call went", ("sched:sched_switch", "sched:sched_waking"), optional=LOCKS),
    Layer(WORKERS, "what the workers of io_uring wait for while they execute requests (with the layer waits)", ()),
    Layer(JOURNAL, "in which phase each commit of ext4's journal was", COMMITS, among_events=True, typed=False),
    Layer(
        FAULTS,
        "page faults of mapped files that needed I/O, as reads of these files",
        ("filemap:mm_filemap_fault",),
        among_events=True,
        by_default=False,
    ),
    Layer(STACKS, "where programs made their slow calls", (), by_default=False),
)
LAYERS: dict[str, Layer] = {layer.name: layer for layer in _LAYERS}
"""Name → layer, in the order of the data's way from the disk to the call."""


class SlowCalls(NamedTuple):
    """The calls whose program's stack the layer ``stacks`` takes."""

    from_ns: int = SLOW_FROM_NS
    """Calls that last this long ..."""
    one_of: int = 1
    """... one in so many of them on each CPU."""


def any_among_events(names: Iterable[str]) -> bool:
    """True if one of these layers writes into the buffers of events."""
    return any(LAYERS[name].among_events for name in names if name in LAYERS)


DEFAULT = tuple(layer.name for layer in LAYERS.values() if layer.by_default)
