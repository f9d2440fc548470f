"""Rules of calling contexts: their place in the tree, and the unwind distances of events.

A calling context is a node of a tree. An event's *unwind distance* compares the path from the event's node to the root
with the path of the previous event on the same location (OTF2_GlobalDefWriter.h, CallingContext, version 3.2). With
distance N + 1 the first N nodes are new, the next node made progress, and all nodes above are unchanged. With distance
0 nothing changed. If all nodes are new, the distance is the number of nodes plus 1. A leave has no distance: the next
event is compared with the parent of the node that was left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.otf2.library import UNDEFINED_U32

if TYPE_CHECKING:
    from lo2io.otf2.read.definitions import Definitions
    from lo2io.verify.operations import LocationState
    from lo2io.verify.rules import Verification

UNSEEN = -1
"""The previous context is not known or not defined, so the next step cannot be checked."""
_ENTERED = 2
"""The least unwind distance of an enter: at least one node is new."""
_MOST_KEPT = 1 << 16
"""The number of verdicts that are kept, as the same steps recur often."""
_IO_ROLES = (27, 38)
"""``OTF2_REGION_ROLE_FILE_IO`` and ``OTF2_REGION_ROLE_FILE_IO_METADATA``."""


class ContextRules:
    """Follows the calling context of every location."""

    def __init__(self, definitions: Definitions, verdict: Verification) -> None:
        self._definitions = definitions
        self._verdict = verdict
        self._contexts = definitions.table("calling-context")
        self.parents = {context: values[2] for context, values in self._contexts.items()}
        self.right_enters: dict[tuple[int, int, int, int], int] = {}
        """Step that keeps every rule → entered region. A step is the previous context, the new context, the distance,
        and the context that was entered last (or undefined)."""
        self.right_samples: set[tuple[int, int, int, int, int]] = set()
        """Steps of samples that keep every rule, with the interrupt generator."""
        self._sampled: set[int] = set()

    def region(self, context: int) -> int | None:
        """The region of a calling context; None if the context is not defined."""
        values = self._contexts.get(context)
        return None if values is None else values[0]

    def enter(self, state: LocationState, time: int, context: int, distance: int) -> None:
        """Take a CallingContextEnter of a defined context."""
        step = self._step(state, time, context, distance)
        if step is not None and distance < _ENTERED:
            text = f"calling context {context} is entered, but its unwind distance is {distance}"
            self._report("context.progress", state, time, text)
        elif step is not None and len(self.right_enters) < _MOST_KEPT:
            self.right_enters[step] = self._contexts[context][0]

    def sample(
        self, state: LocationState, time: int, context: int, distance: int, generator: int | None = None
    ) -> None:
        """Take a CallingContextSample of a defined context. ``generator`` is None if it is not defined."""
        self._sampled.add(context)
        step = self._step(state, time, context, distance)
        if step is not None and generator is not None and len(self.right_samples) < _MOST_KEPT:
            self.right_samples.add((*step, generator))

    def leave(self, state: LocationState, time: int, context: int, entered: int) -> None:
        """Take a CallingContextLeave.

        ``entered`` is the context of the enter that belongs to it: of the same region.
        """
        state.context = self.parents[context]
        if context != entered and state.context != self.parents.get(entered, UNSEEN):
            text = f"calling context {context} is left; {entered} was entered, and has another parent"
            self._report("context.outside", state, time, text)
            state.context = UNSEEN

    def samples_io(self) -> bool:
        """True if any sample so far was taken in a region of file I/O."""
        regions = self._definitions.table("region")
        found = {self.region(context) for context in self._sampled}
        return any(regions[region][3] in _IO_ROLES for region in found if region is not None and region in regions)

    def _report(self, rule: str, state: LocationState, time: int, text: str) -> None:
        self._verdict.report(rule, text, location=state.id, time=time, event=state.ordinal)

    def _step(self, state: LocationState, time: int, context: int, distance: int) -> tuple[int, int, int, int] | None:
        """Go on to a context. Return the step if it keeps every rule, else None."""
        entered = state.stack[-1][2] if state.stack else UNDEFINED_U32
        step = state.context, context, distance, entered
        state.context = context
        problem = self._problem(*step)
        if problem is None:
            return step
        self._report(problem[0], state, time, problem[1])
        if problem[0] == "context.outside":
            state.context = UNSEEN  # the next event is not to blame
        return None

    def _path(self, context: int) -> list[int]:
        """The context and its parents, up to the root. Cycles are cut; another rule reports them."""
        path: list[int] = []
        seen: set[int] = set()
        while context in self._contexts and context not in seen:
            path.append(context)
            seen.add(context)
            context = self._contexts[context][2]
        return path

    def _problem(self, before: int, context: int, distance: int, entered: int) -> tuple[str, str] | None:
        """The rule that a step from one context to another breaks, and the finding's text."""
        path = self._path(context)
        if distance > len(path) + 1:
            text = f"unwind distance {distance} of calling context {context}, whose path has {len(path)} nodes"
            return "context.unwind", text
        if entered not in (UNDEFINED_U32, UNSEEN):
            inside = self._places_inside(path, entered)
            if inside is None:
                text = f"calling context {context} does not lie inside {entered}, which is still entered"
                return "context.outside", text
            if distance > inside:
                text = (
                    f"unwind distance {distance} of calling context {context} leaves {entered}, which is still entered"
                )
                return "context.unwind", text
        return None if before == UNSEEN else self._way(self._path(before), path, distance)

    def _places_inside(self, path: list[int], entered: int) -> int | None:
        """The number of the path's nodes within the entered region, its own included; None: it is not in the path."""
        outer = self.parents[entered]
        number = path.index(outer) if outer in path else len(path)
        there = outer in path or outer == UNDEFINED_U32
        return number if there and number and self.region(path[number - 1]) == self.region(entered) else None

    def _way(self, before: list[int], path: list[int], distance: int) -> tuple[str, str] | None:
        """Check that both paths share the node at this distance, and that the node below has one region in both."""
        context, last = path[0], before[0] if before else "none"
        if distance > len(path):
            return None
        common = path[distance] if distance < len(path) else None
        if common is not None and common not in before:
            text = (
                f"unwind distance {distance} of calling context {context} leads to {common}, outside of {last}'s path"
            )
            return "context.unwind", text
        if distance == 0:
            same = context == last
        else:
            place = len(before) if common is None else before.index(common)
            same = place > 0 and self.region(before[place - 1]) == self.region(path[distance - 1])
        if same:
            return None
        text = f"unwind distance {distance} of calling context {context} does not fit the previous context {last}"
        return "context.progress", text
