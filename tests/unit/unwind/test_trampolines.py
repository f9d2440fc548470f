"""Functions of Python have frames: through the copies that CPython makes of a piece of its own code."""

from __future__ import annotations

import struct
import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from build.copies import copied, mmap2, record, registers

from lo2io.model import UNKNOWN_U32
from lo2io.unwind.modules import Module
from lo2io.unwind.stacks import Stacks
from lo2io.unwind.trampolines import trampoline_of
from lo2io.unwind.walk import Way

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lo2io.unwind.stacks import FrameAt

CODE = """
__asm__(".globl %s\\n%s:" CODE);
void evaluate(void) { __asm__ volatile("nop"); }
"""
SYMBOL = "_Py_trampoline_func_start"
KEEPS_8_BYTES = "sub $8, %rsp; call *%rcx; add $8, %rsp; ret"
LANDS = f"endbr64; {KEEPS_8_BYTES}"
BACK = {KEEPS_8_BYTES: 6, LANDS: 10}
"""Code → bytes up to where its call returns, as objdump tells them."""
KEEPS_FRAME_POINTER = "push %rbp; mov %rsp, %rbp; call *%rcx; pop %rbp; ret"
BASE, SP, MADE = 0x5000_0000, 0x7000_0000, 0x3000
TABLES, POINTERS = Way.UNWIND_TABLES, Way.FRAME_POINTERS


@pytest.fixture
def interpreter(tmp_path: Path) -> Callable[..., Path]:
    """Builds a library with such code, and with a function that it could call."""

    def build(code: str, symbol: str = SYMBOL) -> Path:
        text = CODE.replace("CODE", f'"{code}"').replace("%s", symbol)
        (tmp_path / "code.c").write_text(text, encoding="ascii")
        flags = ["-shared", "-fPIC", "-O2", "-fomit-frame-pointer", "-fcf-protection=none", "-Wl,--build-id=sha1"]
        subprocess.run(["cc", *flags, "-o", "code.so", "code.c"], cwd=tmp_path, check=True)
        return tmp_path / "code.so"

    return build


def found_in(path: Path) -> int | None:
    """Where the trampoline's call returns; None: the file has none."""
    module = Module(path)
    try:
        trampoline = trampoline_of(module)
        return trampoline.back if trampoline else None
    finally:
        module.close()


@pytest.mark.parametrize("code", BACK)
def test_the_interpreter_has_the_code_that_it_copies(interpreter: Callable[..., Path], code: str) -> None:
    """With and without a landing place for indirect jumps."""
    path = interpreter(code)
    lines = subprocess.run(["objdump", "-d", path], check=True, capture_output=True, text=True).stdout.splitlines()
    places = [
        line.split(":")[0].strip() for line in lines[lines.index(next(each for each in lines if SYMBOL in each)) :]
    ]
    returns = next(at for at, line in enumerate(lines) if "call" in line and "*%rcx" in line) + 1
    begin = int(places[1], 16)
    assert found_in(path) == int(lines[returns].split(":")[0], 16) - begin == BACK[code]
    stripped = path.with_name("stripped.so")
    subprocess.run(["strip", "-o", stripped, path], check=True)
    assert found_in(stripped) == BACK[code]


def test_other_code_is_no_trampoline(interpreter: Callable[..., Path], tmp_path: Path) -> None:
    """Of another form, of another name, and in a damaged file."""
    assert found_in(interpreter(KEEPS_FRAME_POINTER)) is None
    assert found_in(interpreter(KEEPS_8_BYTES, symbol="other")) is None
    path = interpreter(KEEPS_8_BYTES)
    content = path.read_bytes()
    (damaged := tmp_path / "damaged.so").write_bytes(content.replace(bytes.fromhex("4883ec08ffd1"), b"\xcc" * 6))
    assert found_in(damaged) is None


class _Maps:
    """In place of a ``PerfMap``: one function, 16 bytes long."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *_: Any) -> _Maps:
        return self

    def at(self, address: int) -> tuple[int, str]:
        """Begin and name."""
        return (MADE, self.name) if MADE <= address < MADE + 16 else (0, "")


def unwound(path: Path, name: str, back: int, monkeypatch: pytest.MonkeyPatch) -> tuple[tuple[FrameAt, ...], str]:
    """The frames of ``evaluate``, called by made code of this name, called by ``evaluate``; and the latter's build id.

    The stack has no frame pointers.
    """
    monkeypatch.setattr("lo2io.unwind.stacks.PerfMap", _Maps(name))
    module = Module(path)
    build_id = module.build_id
    module.close()
    lines = subprocess.run(["nm", path], check=True, capture_output=True, text=True).stdout.splitlines()
    (evaluate,) = [int(line.split()[0], 16) for line in lines if line.endswith(" evaluate")]
    memory = struct.pack("<4Q", MADE + back, 0, BASE + evaluate + 1, 0)
    told = [
        record(mmap2(1, BASE, BASE + (1 << 20), build_id=build_id, path=str(path))),
        record(mmap2(1, MADE, MADE + 4096)),
        copied(1, registers(ip=BASE + evaluate, sp=SP), memory),
    ]
    stacks = Stacks(())
    stacks.take(b"".join(told), {"stack": np.array([UNKNOWN_U32], np.uint32)})
    (stack,) = stacks.unwound()
    stacks.close()
    return stack.frames, build_id


@pytest.mark.parametrize("code", BACK)
def test_a_function_of_python_has_a_frame_and_a_caller(
    interpreter: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """The copy has no tables, and keeps no frame pointer."""
    frames, build_id = unwound(interpreter(code), "py::run:/a b.py", BACK[code], monkeypatch)
    assert [(frame.build_id, frame.function, frame.way) for frame in frames] == [
        (build_id, "", TABLES),
        ("", "py::run:/a b.py", TABLES),
        (build_id, "", TABLES),
    ]


@pytest.mark.parametrize(
    ("name", "back"),
    [("jit::run", BACK[KEEPS_8_BYTES]), ("py::run", BACK[KEEPS_8_BYTES] + 1), ("py::run", BACK[LANDS])],
)
def test_other_made_code_is_followed_by_its_frame_pointer(
    interpreter: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, name: str, back: int
) -> None:
    """Code of another name, and places to which no trampoline returns. Frame pointers tell nothing here."""
    frames, build_id = unwound(interpreter(KEEPS_8_BYTES), name, back, monkeypatch)
    assert [(frame.build_id, frame.function) for frame in frames] == [(build_id, ""), ("", name)]
