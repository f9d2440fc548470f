"""Finds the *plain* events of a block: they keep every rule, and no later event depends on them.

Nearly all events of nearly all traces are plain: a call that reads from an open file, from start to end, or a metric
of the right type on the right location. Plain events are found in whole columns, and only counted. ``events.py`` checks
all others one by one, in order; there each rule has its text. So an event may be called plain only if leaving it out
changes no finding. A plain event that is missed here only costs time.

Events of one tick have no order across locations. A block ends with a tick, so no event is held from one block to the
next.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lo2io.otf2.library import UNDEFINED_U32, UNDEFINED_U64
from lo2io.otf2.read.definitions import REFERENCE_TYPES, undefined
from lo2io.otf2.read.events import KINDS
from lo2io.otf2.read.tables import Places, references
from lo2io.verify.operations import ANYONE, FLUSH, NON_BLOCKING, UNCLAIMED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from lo2io.otf2.read.definitions import Definitions
    from lo2io.otf2.read.events import Block
    from lo2io.verify.metrics import MetricRules
    from lo2io.verify.operations import IoRules
    from lo2io.verify.rings import RingRules

    Flags = NDArray[np.bool_]
    Numbers = NDArray[np.int64]


def _kinds(*events: str) -> Flags:
    """A flag for each kind of event: True for those named."""
    flags = np.zeros(len(KINDS), np.bool_)
    flags[[KINDS[event] for event in events]] = True
    return flags


_BEGIN, _ISSUED, _COMPLETE = (KINDS[f"IoOperation{event}"] for event in ("Begin", "Issued", "Complete"))
_CREATE, _DESTROY, _DUPLICATE = (KINDS[f"Io{event}Handle"] for event in ("Create", "Destroy", "Duplicate"))
_ENTER, _LEAVE, _METRIC = KINDS["Enter"], KINDS["Leave"], KINDS["Metric"]
_CONTEXT_ENTER, _CONTEXT_LEAVE = KINDS["CallingContextEnter"], KINDS["CallingContextLeave"]
_REGIONS: Final = _kinds("Enter", "Leave", "CallingContextEnter", "CallingContextLeave")
_USES: Final = _kinds("IoSeek", "IoChangeStatusFlags", "IoAcquireLock", "IoReleaseLock", "IoTryLock")
_ENDS: Final = _kinds("IoOperationComplete", "IoOperationCancelled")
_OPERATIONS: Final = _kinds("IoOperationBegin", "IoOperationTest", "IoOperationIssued") | _ENDS
_HANDLES: Final = _OPERATIONS | _USES | _kinds("IoCreateHandle", "IoDestroyHandle", "IoDuplicateHandle")


def _starts(column: NDArray[Any]) -> Numbers:
    """The places where runs of equal values begin."""
    return np.flatnonzero(np.concatenate([[True], column[1:] != column[:-1]])) if len(column) else np.empty(0, np.int64)


def _order(column: NDArray[np.uint64]) -> Numbers:
    """A stable argsort. It is quick if the numbers lie close together, as those of a counter do in a block."""
    bits = len(column).bit_length()
    lowest = column.min() if len(column) else np.uint64(0)
    if len(column) and int(column.max() - lowest) >> (64 - bits):
        return np.argsort(column, kind="stable")
    keys = (column - lowest) << np.uint64(bits) | np.arange(len(column), dtype=np.uint64)
    keys.sort()
    return (keys & np.uint64((1 << bits) - 1)).astype(np.int64)


_UNSAID: Final = -1
"""Marks an attribute that an event does not have."""


class Columns:
    """A block's columns, each contiguous in memory, and the location group of each event."""

    def __init__(self, block: Block, groups: Numbers) -> None:
        self.block = block
        for name in ("time", "bytes", "ident", "location", "ref", "second", "nr_attributes", "kind", "mode"):
            setattr(self, name, np.ascontiguousarray(block.events[name]))
        self.group = groups[self.location]
        self.number = len(self.kind)

    @cached_property
    def attributes(self) -> tuple[Numbers, NDArray[Any]]:
        """The events' attributes: for each the place of its event, and its row of the details."""
        numbers = self.nr_attributes.astype(np.int64)
        owner = np.repeat(np.arange(self.number), numbers)
        inside = np.arange(len(owner)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
        return owner, self.block.details[self.block.events["first_detail"][owner].astype(np.int64) + inside]

    time: NDArray[np.uint64]
    bytes: NDArray[np.uint64]
    ident: NDArray[np.uint64]
    location: NDArray[np.uint32]
    ref: NDArray[np.uint32]
    second: NDArray[np.uint32]
    nr_attributes: NDArray[np.uint16]
    kind: NDArray[np.uint8]
    mode: NDArray[np.uint8]


class Attributes:
    """Facts about the attributes of a block's events."""

    def __init__(self, number: int, telling: Iterable[str]) -> None:
        self.wrong = np.zeros(number, np.bool_)
        """Events with attributes that break a rule."""
        self.wanted = np.zeros(number, np.bool_)
        """Events with attributes that rules of rings read."""
        self.asking = np.zeros(number, np.bool_)
        """Events among ``wanted`` with attributes other than those that say how a request ended."""
        self.told = {key: np.full(number, _UNSAID, np.int64) for key in telling}
        """Key of an attribute about a request's end → reference of the attribute's string, for each event."""


class Screen:
    """Finds the plain events of blocks.

    The arguments are the trace's definitions, and the rules whose state decides.
    """

    def __init__(
        self,
        definitions: Definitions,
        io: IoRules,
        metrics: MetricRules,
        rings: RingRules,
    ) -> None:
        self._io, self._handles, self._rings = io, io.columns, rings
        self._definitions = definitions
        self._tables: dict[str, Places] = {}
        self._refs = np.empty(0, np.uint64)
        self._regions = self._places("region")
        self._attributes = self._places("attribute")
        table = definitions.table("attribute")
        ordered = self._attributes.refs.tolist()
        self._attribute_types = np.array([table[ref][2] for ref in ordered], np.uint8)
        wanted = rings.wanted if rings else frozenset()
        self._wanted = np.array([ref in wanted for ref in ordered], np.bool_)
        self._telling = np.array([ref in rings.telling.values() for ref in ordered], np.bool_)
        self._curves = np.array(list(rings.curves), np.uint32)
        self._works = np.array(list(rings.works), np.uint32)
        self._contexts = self._places("calling-context")
        contexts = definitions.table("calling-context").items()
        self._work_contexts = np.array([ref for ref, values in contexts if values[0] in rings.works], np.uint32)
        self._expect(metrics)

    def start(self, locations: Sequence[int]) -> None:
        """Go on with these locations, in the order in which blocks count them."""
        self._refs = np.array(locations, np.uint64)

    def _places(self, kind: str) -> Places:
        if kind not in self._tables:
            self._tables[kind] = Places(references(self._definitions.table(kind)))
        return self._tables[kind]

    # ---- attributes ----

    def attributes(self, columns: Columns) -> Attributes:
        """Check all attributes of a block."""
        found = Attributes(columns.number, self._rings.telling)
        owner, details = columns.attributes
        if not len(owner):
            return found
        places, types = self._attributes.of(details["ref"]), details["type"]
        known = places >= 0
        if not known.any():
            found.wrong[owner] = True
            return found
        bad = ~known | (self._attribute_types[places] != types)
        for kind in np.flatnonzero(np.bincount(types, minlength=1)).tolist():
            if kind in REFERENCE_TYPES:
                bad |= (types == kind) & self._dangling(REFERENCE_TYPES[kind], details["value"])
        wanted = known & self._wanted[places]
        found.wrong[owner[bad]] = True
        found.wanted[owner[wanted]] = True
        found.asking[owner[wanted & ~self._telling[places]]] = True
        for key, ref in self._rings.telling.items():
            telling = details["ref"] == ref
            found.told[key][owner[telling]] = details["value"][telling] & np.uint64(UNDEFINED_U32)
        return found

    def _dangling(self, kind: str, values: NDArray[np.uint64]) -> Flags:
        refs = values if kind == "location" else values & np.uint64(UNDEFINED_U32)
        dangling: Flags = (self._places(kind).of(refs) < 0) & (refs != np.uint64(undefined(kind)))
        return dangling

    # ---- all ----

    def plain(self, columns: Columns, right: Flags, told: Mapping[str, Numbers]) -> Flags:
        """Find the plain events except those of regions, and hand them to the rules that count them.

        Args:
            columns: The block's columns. Times ascend, also from block to block.
            right: Events that keep the rules of time and of attributes, and whose attributes no rule of rings reads.
            told: How requests of rings ended, as in :class:`Attributes`.
        """
        self._told = told
        plain = np.zeros(columns.number, np.bool_)
        self._metrics(columns, right, plain)
        self._uses(columns, right, plain)
        return plain

    # ---- metrics ----

    def _expect(self, metrics: MetricRules) -> None:
        """Note the types and recorders of each metric, by the metric's place."""
        self._metric_places = Places(list(metrics.expected))
        expected = [metrics.expected[ref] for ref in self._metric_places.refs.tolist()]
        types = [b"" if one.types is None else one.types for one in expected]
        self._said = np.array([one.types is not None for one in expected], np.bool_)
        self._lengths = np.array([len(each) for each in types], np.int64)
        self._first_types = np.cumsum(self._lengths) - self._lengths
        self._types = np.frombuffer(b"".join(types), np.uint8)
        self._recorders = [one.recorders for one in expected]

    def _metrics(self, columns: Columns, right: Flags, plain: Flags) -> None:
        at = np.flatnonzero((columns.kind == _METRIC) & right)
        places = self._metric_places.of(columns.ref[at])
        at, places = at[places >= 0], places[places >= 0]
        if not len(at):
            return
        events = columns.block.events[at]
        numbers = events["nr_values"].astype(np.int64)
        fits = self._said[places] & (numbers == self._lengths[places])
        at, places, events, numbers = at[fits], places[fits], events[fits], numbers[fits]
        if not len(at):
            return
        first = events["first_detail"].astype(np.int64) + events["nr_attributes"]
        inside = np.arange(numbers.sum()) - np.repeat(np.cumsum(numbers) - numbers, numbers)
        types = columns.block.details["type"][np.repeat(first, numbers) + inside]
        same = np.ones(len(at), np.bool_)
        same[
            np.repeat(np.arange(len(at)), numbers)[
                types != self._types[np.repeat(self._first_types[places], numbers) + inside]
            ]
        ] = False
        same &= self._recorded_right(places, columns.location[at])
        if len(self._curves):
            self._states(columns, at, first, same)
        plain[at[same]] = True

    def _states(self, columns: Columns, at: Numbers, first: Numbers, right: Flags) -> None:
        """Hand over metrics of rings' states: all of the block, or none. Only a ring's last metric counts."""
        of_rings = np.isin(columns.ref[at], self._curves)
        all_of_rings = np.count_nonzero((columns.kind == _METRIC) & np.isin(columns.ref, self._curves))
        if np.count_nonzero(of_rings & right) != all_of_rings:
            right &= ~of_rings
            return
        places = np.flatnonzero(of_rings)[::-1]
        refs, last, numbers = np.unique(columns.ref[at[places]], return_index=True, return_counts=True)
        for ref, place, number in zip(refs.tolist(), places[last].tolist(), numbers.tolist(), strict=True):
            event = columns.block.events[at[place]]
            values = columns.block.details["value"][first[place] : first[place] + int(event["nr_values"])]
            self._rings.take_over_states(ref, number, tuple(values.tolist()))

    def _recorded_right(self, places: Numbers, locations: NDArray[np.uint32]) -> Flags:
        """True for each metric that may be recorded on its location."""
        both, which = np.unique(places * len(self._refs) + locations, return_inverse=True)
        allowed = np.zeros(len(both), np.bool_)
        for number, one in enumerate(both.tolist()):
            place, location = divmod(one, len(self._refs))
            recorders = self._recorders[place]
            allowed[number] = recorders is None or int(self._refs[location]) in recorders
        return allowed[which]

    # ---- handles and operations ----

    def _uses(self, columns: Columns, right: Flags, plain: Flags) -> None:
        at = np.flatnonzero(_HANDLES[columns.kind])
        if not len(at):
            return
        kind, places = columns.kind[at], self._handles.places.of(columns.ref[at])
        fits = right[at] & self._usable(columns, at, places)
        plain[at[fits & _USES[kind]]] = True
        some = _OPERATIONS[kind]
        self._operations(columns, at[some], places[some], right[at[some]], fits[some], plain)

    def _usable(self, columns: Columns, at: Numbers, places: Numbers) -> Flags:
        """True for each event with an active handle of the event's own location group."""
        handles, kind, group = self._handles, columns.kind[at], columns.group[at]
        known: Flags = (places >= 0) & (len(handles.places) > 0)
        if not known.any():
            return known
        owner = handles.group[places]
        fits: Flags = known & handles.alone[places] & handles.active[places] & ((owner == group) | (owner == ANYONE))
        fresh = np.flatnonzero(kind == _DUPLICATE)
        targets = handles.places.of(columns.second[at[fresh]])
        fresh, targets = fresh[targets >= 0], targets[targets >= 0]
        changed = np.zeros(len(handles.places), np.bool_)
        changed[places[known & ((kind == _CREATE) | (kind == _DESTROY))]] = True
        changed[targets] = True
        some = np.flatnonzero(known & changed[places])
        if len(some):
            change = (kind == _CREATE).astype(np.int8) - (kind == _DESTROY)
            of_changed = self._usable_between(
                np.concatenate([places[some], targets]),
                np.concatenate([some, fresh]),
                np.concatenate([change[some], np.ones(len(fresh), np.int8)]),
                columns.location[at],
                group,
                fits,
            )
            fits[some] = of_changed[: len(some)]
        return fits

    def _usable_between(  # noqa: PLR0917 -- columns
        self,
        places: Numbers,
        at: Numbers,
        change: NDArray[np.int8],
        locations: NDArray[np.uint32],
        groups: Numbers,
        before: Flags,
    ) -> Flags:
        """As :meth:`_usable`, for handles that the block creates or destroys and that only one location uses."""
        order = np.lexsort((at, places))
        sorted_places, sorted_at, sorted_change = places[order], at[order], change[order]
        starts = _starts(sorted_places)
        lengths = np.diff(np.append(starts, len(order)))
        at_locations = locations[sorted_at]
        single = np.repeat(
            np.minimum.reduceat(at_locations, starts) == np.maximum.reduceat(at_locations, starts), lengths
        )
        last = np.maximum.accumulate(np.where(sorted_change != 0, np.arange(len(order)), -1))
        inside = last >= np.repeat(starts, lengths)
        owner = self._handles.group[sorted_places]
        own = (owner == UNCLAIMED) | (owner == groups[sorted_at]) | (owner == ANYONE)
        fits = single & self._handles.alone[sorted_places]
        fits &= np.where(inside, own & (sorted_change[last] > 0), before[sorted_at])
        found = np.empty(len(order), np.bool_)
        found[order] = fits
        return found

    def _operations(  # noqa: PLR0917 -- columns
        self, columns: Columns, at: Numbers, places: Numbers, right: Flags, fits: Flags, plain: Flags
    ) -> None:
        """Find operations that start and end in the block and share their matching id with no other event."""
        order = _order(columns.ident[at])
        at, places, right, fits = at[order], places[order], right[order], fits[order]
        right &= places >= 0
        if not right.any():
            return
        starts = _starts(columns.ident[at])
        lengths = np.diff(np.append(starts, len(at)))
        blocking = starts[lengths == 2]  # noqa: PLR2004 -- begin, complete
        queued = starts[lengths == 3]  # noqa: PLR2004 -- begin, issued, complete
        blocking = blocking[fits[blocking] & fits[blocking + 1]]
        blocking = self._whole(columns, at, places, right, blocking, 1, non_blocking=False)
        queued = queued[fits[queued] & right[queued + 1] & (columns.kind[at[queued + 1]] == _ISSUED)]
        queued = queued[self._same(columns, at, queued, 1)]
        queued = self._whole(columns, at, places, right, queued, 2, non_blocking=True)
        both = np.concatenate([blocking, queued])
        both = np.sort(both)
        both = both[~self._io.known_ids(columns.ident[at[both]])]
        long = columns.kind[at[np.minimum(both + 1, len(at) - 1)]] == _ISSUED
        ends = at[both + 1 + long]
        plain[at[both]] = plain[ends] = plain[at[both[long] + 1]] = True
        of_ring = self._handles.of_ring[places[both]]
        self._rings.take_over(columns.ident[at[both[of_ring]]])
        completed = int(np.count_nonzero(columns.kind[ends] == _COMPLETE))
        self._io.take_over(columns.ident[at[both]], completed=completed, cancelled=len(both) - completed)

    @staticmethod
    def _same(columns: Columns, at: Numbers, begins: Numbers, further: int) -> Flags:
        """True for each start if the event ``further`` places on has the same handle and location."""
        one, other = at[begins], at[begins + further]
        same: Flags = (columns.ref[one] == columns.ref[other]) & (columns.location[one] == columns.location[other])
        return same

    def _whole(  # noqa: PLR0917 -- columns
        self,
        columns: Columns,
        at: Numbers,
        places: Numbers,
        right: Flags,
        begins: Numbers,
        further: int,
        *,
        non_blocking: bool,
    ) -> Numbers:
        """The starts of operations that keep all rules. The operation's end lies ``further`` places on."""
        if not len(begins):
            return begins
        begin, end, place = at[begins], at[begins + further], places[begins]
        asked, moved = columns.bytes[begin], columns.bytes[end]
        ends = _ENDS[columns.kind[end]] if non_blocking else columns.kind[end] == _COMPLETE
        good = right[begins] & right[begins + further] & ends & self._same(columns, at, begins, further)
        good &= (columns.kind[begin] == _BEGIN) & ((columns.second[begin] & NON_BLOCKING != 0) == non_blocking)
        flush = columns.mode[begin] == FLUSH
        good &= (columns.mode[begin] < FLUSH) | (flush & (asked == UNDEFINED_U64))
        good &= (moved <= asked) | (moved == UNDEFINED_U64) | self._handles.of_disk[place]
        of_ring = self._handles.of_ring[place]
        good &= ~of_ring | (non_blocking & self._ends_right(columns, end, good & of_ring))
        return begins[good]

    def _ends_right(self, columns: Columns, ends: Numbers, some: Flags) -> Flags:
        """True for each end that keeps the rules of rings; only those in ``some`` are ends of rings' requests."""
        right = np.zeros(len(ends), np.bool_)
        at = ends[some]
        if not len(at):
            return right
        cancelled = columns.kind[at] != _COMPLETE
        ways = np.stack([self._told["status"][at], self._told["path"][at], cancelled], axis=1)
        kinds, which = np.unique(ways, axis=0, return_inverse=True)
        may = np.array(
            [
                self._rings.ends_right(
                    *(None if ref == _UNSAID else ref for ref in told), cancelled=bool(was_cancelled)
                )
                for *told, was_cancelled in kinds.tolist()
            ],
            np.bool_,
        )
        right[some] = may[which.reshape(-1)]
        return right

    # ---- regions ----

    def leaves(self, columns: Columns, right: Flags, working: Flags, plain: Flags) -> Numbers:
        """Find regions with only plain events between enter and leave.

        Enter and Leave of such a region are plain. For a calling context, the enter's step must be checked; the leave
        counts as plain.

        Args:
            columns: The block's columns.
            right: Events that keep the rules of time and of attributes, and whose attributes no rule of rings reads.
            working: Locations that execute requests of rings, by place. Their regions are not plain.
            plain: The events known to be plain. Events of regions are added.

        Returns:
            For each event that enters such a calling context, the place of its leave; else -1.
        """
        left = np.full(columns.number, -1, np.int64)
        small = columns.location.astype(np.uint16) if len(self._refs) < 1 << 16 else columns.location
        order = np.argsort(small, kind="stable")
        region = _REGIONS[columns.kind[order]]
        places = np.flatnonzero(region)
        odd = np.cumsum(~region & ~plain[order])
        first, second = places[:-1], places[1:]
        one, other = order[first], order[second]
        if len(self._works):
            working = working.copy()
            working[columns.location[self._starts_work(columns)]] = True
        same = (columns.ref[one] == columns.ref[other]) & (columns.location[one] == columns.location[other])
        same &= right[one] & right[other] & (odd[first] == odd[second]) & ~working[columns.location[one]]
        called = same & (columns.kind[one] == _ENTER) & (columns.kind[other] == _LEAVE)
        called &= self._regions.of(columns.ref[one]) >= 0
        plain[one[called]] = plain[other[called]] = True
        called = same & (columns.kind[one] == _CONTEXT_ENTER) & (columns.kind[other] == _CONTEXT_LEAVE)
        called &= self._contexts.of(columns.ref[one]) >= 0
        plain[other[called]] = True
        left[one[called]] = other[called]
        return left

    def _starts_work(self, columns: Columns) -> Flags:
        """True for each event that enters a region of a worker of rings."""
        entered: Flags = (columns.kind == _ENTER) & np.isin(columns.ref, self._works)
        entered |= (columns.kind == _CONTEXT_ENTER) & np.isin(columns.ref, self._work_contexts)
        return entered
