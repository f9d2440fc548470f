"""Rules of calling contexts: where they lie in the tree, and what unwind distances say of the way between two.

A calling context is a node of a tree. An event's *unwind distance* tells how the path from its node to the root came
about since the context before it on its location (OTF2_GlobalDefWriter.h, CallingContext, version 3.2): with distance
N + 1 the first N nodes were newly entered, the next one made progress, and what lies above was there before. Distance 0
means that nothing changed. Where all is new, the distance is one more than the path has nodes. A leave has no distance:
the context before the next event is the parent of what was left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.otf2.library import UNDEFINED_U32

if TYPE_CHECKING:
    from lo2io.otf2.read.definitions import Definitions
    from lo2io.verify.operations import LocationState
    from lo2io.verify.rules import Verification

UNSEEN = -1
"""No context is known yet, or it was not defined: nothing can be said about the way from it."""
_ENTERED = 2
"""Least unwind distance of an enter, which enters something."""
_MOST_KEPT = 1 << 16
"""Verdicts kept: the same steps recur again and again."""
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
        """Steps that keep every rule → the region that is entered: context before, context, distance, context of what
        was entered last (or undefined)."""
        self.right_samples: set[tuple[int, int, int, int, int]] = set()
        """The same of samples, with the interrupt generator."""
        self._sampled: set[int] = set()

    def region(self, context: int) -> int | None:
        """The region of a calling context, None if it is not defined."""
        values = self._contexts.get(context)
        return None if values is None else values[0]

    def enter(self, state: LocationState, time: int, context: int, distance: int) -> None:
        """CallingContextEnter, of a context that is defined."""
        step = self._step(state, time, context, distance)
        if step is not None and distance < _ENTERED:
            text = f"calling context {context} is entered, which unwind distance {distance} denies"
            self._report("context.progress", state, time, text)
        elif step is not None and len(self.right_enters) < _MOST_KEPT:
            self.right_enters[step] = self._contexts[context][0]

    def sample(
        self, state: LocationState, time: int, context: int, distance: int, generator: int | None = None
    ) -> None:
        """CallingContextSample, of a context that is defined; the generator only if it is defined, too."""
        self._sampled.add(context)
        step = self._step(state, time, context, distance)
        if step is not None and generator is not None and len(self.right_samples) < _MOST_KEPT:
            self.right_samples.add((*step, generator))

    def leave(self, state: LocationState, time: int, context: int, entered: int) -> None:
        """CallingContextLeave of what was entered as ``entered``: both of the same region."""
        state.context = self.parents[context]
        if context != entered and state.context != self.parents.get(entered, UNSEEN):
            text = f"calling context {context} is left, which lies elsewhere than {entered}, which was entered"
            self._report("context.outside", state, time, text)
            state.context = UNSEEN

    def samples_io(self) -> bool:
        """Whether any sample so far was taken in a region of file I/O."""
        regions = self._definitions.table("region")
        found = {self.region(context) for context in self._sampled}
        return any(regions[region][3] in _IO_ROLES for region in found if region in regions)

    def _report(self, rule: str, state: LocationState, time: int, text: str) -> None:
        self._verdict.report(rule, text, location=state.id, time=time, event=state.ordinal)

    def _step(self, state: LocationState, time: int, context: int, distance: int) -> tuple[int, int, int, int] | None:
        """Go on to a context, and return the step if nothing is wrong with it."""
        entered = state.stack[-1][2] if state.stack else UNDEFINED_U32
        step = state.context, context, distance, entered
        state.context = context
        problem = self._problem(*step)
        if problem is None:
            return step
        self._report(problem[0], state, time, problem[1])
        if problem[0] == "context.outside":
            state.context = UNSEEN  # what follows is not to blame
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
        """Rule and text of what is wrong with a step from one context to another."""
        path = self._path(context)
        if distance > len(path) + 1:
            text = f"unwind distance {distance} of calling context {context}, which ends a path of {len(path)}"
            return "context.unwind", text
        if entered not in (UNDEFINED_U32, UNSEEN):
            inside = self._places_inside(path, entered)
            if inside is None:
                text = f"calling context {context} does not lie inside {entered}, which was entered and not left"
                return "context.outside", text
            if distance > inside:
                text = f"unwind distance {distance} of calling context {context} leaves {entered}, which was not left"
                return "context.unwind", text
        return None if before == UNSEEN else self._way(self._path(before), path, distance)

    def _places_inside(self, path: list[int], entered: int) -> int | None:
        """How many nodes of the path lie inside the entered region, itself included; None: it is not in the path."""
        outer = self.parents[entered]
        number = path.index(outer) if outer in path else len(path)
        there = outer in path or outer == UNDEFINED_U32
        return number if there and number and self.region(path[number - 1]) == self.region(entered) else None

    def _way(self, before: list[int], path: list[int], distance: int) -> tuple[str, str] | None:
        """Whether both paths share the node at this distance, and the node below it has the same region in both."""
        context, last = path[0], before[0] if before else "none"
        if distance > len(path):
            return None
        common = path[distance] if distance < len(path) else None
        if common is not None and common not in before:
            text = f"unwind distance {distance} of calling context {context} leads to {common}; {last} came before"
            return "context.unwind", text
        if distance == 0:
            same = context == last
        else:
            place = len(before) if common is None else before.index(common)
            same = place > 0 and self.region(before[place - 1]) == self.region(path[distance - 1])
        if same:
            return None
        text = f"unwind distance {distance} of calling context {context}; {last} came before"
        return "context.progress", text
