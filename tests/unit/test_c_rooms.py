"""The script that checks the order of the rooms in lo2io/native."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TASK_END = Path("tables/tasks.c"), "void task_end(int task)\n{\n}\n"
RING_END = Path("rings/rings.c"), "void ring_end(int ring) { task_end(ring); }\n"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    """The script's functions."""
    return runpy.run_path(str(ROOT / "scripts/check_c_rooms.py"))


def found(script: dict[str, Any], *files: tuple[Path, str]) -> list[str]:
    """What the script finds in these files, without compiling them."""
    used = script["uses"](dict(files))
    return [*script["against_the_order"](dict(files), used), *script["circles"](used)]


def test_a_room_may_use_those_before_it(script: dict[str, Any]) -> None:
    """rings/ comes after tables/."""
    assert not found(script, TASK_END, RING_END, (Path("rings/rings.h"), '#include "tables/tasks.h"\n'))


def test_a_room_may_not_include_one_behind_it(script: dict[str, Any]) -> None:
    """The message names both files."""
    (message,) = found(script, (Path("tables/tasks.h"), '#include "rings/rings.h"\n'))
    assert message == "lo2io/native/tables/tasks.h includes rings/rings.h, which is further on"


def test_what_writes_otf2_may_not_include_the_engine(script: dict[str, Any]) -> None:
    """Batches are all that otf2/ sees."""
    assert found(script, (Path("otf2/rings.c"), '#include "tables/state.h"\n'))


def test_a_room_may_not_call_one_behind_it(script: dict[str, Any]) -> None:
    """The compiler would accept a declaration copied by hand."""
    message, _ = found(script, RING_END, (TASK_END[0], "void task_end(int task)\n{\n    ring_end(task);\n}\n"))
    assert message == "lo2io/native/tables/tasks.c uses ring_end of rings/rings.c, which is further on"


def test_a_member_a_comment_a_text_and_a_function_of_the_file_are_no_calls(script: dict[str, Any]) -> None:
    """There, the same name means something else."""
    names = (
        'static int ring_end(int);\n/* ring_end */\nint x(s *s) { return s->ring_end + s.ring_end + f("ring_end"); }\n'
    )
    assert not found(script, (Path("rings/rings.c"), "int ring_end(int ring) { }\n"), (Path("tables/tasks.c"), names))


def test_files_of_a_room_may_not_depend_on_one_another_in_a_circle(script: dict[str, Any]) -> None:
    """Two files that call each other."""
    here = Path("calls/calls.c"), "void enter(void) { effects(); }\n"
    (message,) = found(script, here, (Path("calls/effects.c"), "void effects(void) { enter(); }\n"))
    assert "calls/calls.c" in message
    assert "calls/effects.c" in message


def test_those_of_the_state_machine_of_rings_may(script: dict[str, Any]) -> None:
    """rings/ is one thing in several files."""
    here = Path("rings/states.c"), "void state(void) { batch(); }\n"
    assert not found(script, here, (Path("rings/batches.c"), "void batch(void) { state(); }\n"))


def test_a_header_names_what_it_needs(script: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A header that relies on another one before it is named."""
    files = {"tables/whole.h": "#include <stdint.h>\nuint8_t a(void);\n", "tables/half.h": "uint8_t b(void);\n"}
    for name, text in files.items():
        path = tmp_path / "lo2io/native" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (message,) = script["incomplete_headers"]({Path(name): text for name, text in files.items()})
    assert message.startswith("lo2io/native/tables/half.h does not compile alone:\n")


def test_a_function_of_one_file_is_static(script: dict[str, Any]) -> None:
    """Functions of api/ are Python's; a function that another file names is used."""
    files = dict([TASK_END, RING_END, (Path("api/lo2io.h"), "void lo2_run(void);\n")])
    files[Path("engine/engine.c")] = "void lo2_run(void)\n{\n}\nstatic void helper(void)\n{\n}\n"
    (message,) = script["open_without_need"](files, script["uses"](files))
    assert message == "lo2io/native/rings/rings.c: ring_end is used by this file alone: let it be static"
