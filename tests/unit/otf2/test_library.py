"""libotf2 is found wherever it lies, and each release of it that is at hand writes and reads the same."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import _otf2
import pytest
from build.otf2_batches import START, BatchMaker

from lo2io.errors import TraceError
from lo2io.otf2 import library
from lo2io.otf2.merge import flatten
from lo2io.otf2.values import VALUES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def candidates(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Where libotf2 is looked for while the test runs, and anew afterwards."""
    found: list[str] = []
    monkeypatch.setattr(library, "_candidates", lambda: iter(found))
    caches = library._loaded, library._bound, flatten._functions, flatten._events
    for cache in caches:
        cache.cache_clear()
    yield found
    for cache in caches:
        cache.cache_clear()


def test_values_are_those_of_the_package() -> None:
    """Each enumeration value is the one that the otf2 package has under this name."""
    assert {name: getattr(_otf2, name).value for name in VALUES} == VALUES


def test_the_carried_library_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library in lo2io's wheel is preferred to the otf2 package's, and this one to the system's."""
    carried = tmp_path / "libotf2.so.10"
    monkeypatch.setattr(library, "BUNDLED", carried)
    package, *rest = library._candidates()
    assert package.startswith(_otf2.__path__[0])
    assert tuple(rest) == library.SONAMES
    carried.touch()
    assert list(library._candidates()) == [str(carried), package, *rest]
    monkeypatch.setitem(sys.modules, "_otf2", None)  # as if the package were not installed
    assert list(library._candidates()) == [str(carried), *rest]


def test_a_library_that_cannot_be_loaded_is_passed_over(candidates: list[str]) -> None:
    """The next one is tried. If none is left, the error has the loader's answers, and says what to install."""
    candidates.append("/nonexistent/libotf2.so.10")
    with pytest.raises(TraceError, match="/nonexistent/libotf2") as caught:
        library.find_library()
    assert "otf2-tools" in caught.value.remedy
    candidates += library.SONAMES
    assert library.find_library().name.startswith(library.SONAMES)


def test_types_of_events_are_read_from_the_library() -> None:
    """They are those that the otf2 package's own modules have."""
    prefix, suffix = "EvtReaderCallbacks_Set", "Callback"
    names = {name[len(prefix) : -len(suffix)] for name in dir(_otf2) if name.startswith(prefix)}
    assert set(library.Library().setters("EvtReader")) == names
    assert "IoOperationBegin" in names


def test_the_systems_library_writes_and_reads(write: Any, candidates: list[str]) -> None:
    """What the system's libotf2 wrote, the otf2 package reads, and lo2io verifies it with the system's."""
    candidates += library.SONAMES
    maker = BatchMaker()
    maker.task(0)
    maker.row("handles", handle=0, fd=3, origin=3)
    maker.call("read", START, START + 100, handle=0, bytes_request=512, bytes_result=512)
    written = write(maker.make())
    assert [kind for kind, _ in written.shape()] == ["+read", "OperationBegin", "OperationComplete", "-read"]
    assert library.find_library().name.startswith(library.SONAMES)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", ["traces.otf2", "traces.def", "traces/0.evt", "traces/7.def"])
@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_what_has_no_end_is_not_opened(tmp_path: Path, write: Any, name: str, kind: str) -> None:
    """A FIFO would keep lo2io waiting, and /dev/zero would fill the memory. A link leads to either."""
    maker = BatchMaker()
    maker.task(0)
    maker.call("read", START, START + 100)
    write(maker.make())
    place = tmp_path / name
    place.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(place)
    else:
        place.symlink_to("/dev/zero")
    reader = library.Library().reader(tmp_path / "traces.otf2")
    with pytest.raises(TraceError, match=f"{place.name}: no regular file"), reader:
        pass
