"""How the build finds out about the compilers: whose the C compiler is, and whether clang makes the programs."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[2]
GCC = "cc (Debian 12.2.0-14) 12.2.0\nCopyright (C) 2022 Free Software Foundation, Inc.\n"
CLANG = "Debian clang version 14.0.6\nTarget: x86_64-pc-linux-gnu\n"


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The file setup.py as a module that builds nothing. It writes the manual into the working directory."""
    for name in ("docs", "scripts"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    spec = importlib.util.spec_from_file_location("lo2io_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def program(path: Path, script: str) -> str:
    """A program in place of a compiler."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(("name", "told", "is_gcc"), [("cc", GCC, True), ("gcc", CLANG, False), ("gcc", "", False)])
def test_gcc_is_known_by_what_it_tells_of_itself(
    build: Any, tmp_path: Path, name: str, told: str, is_gcc: bool
) -> None:
    """Its name is often cc, and other compilers bear its name: they do not know its options."""
    compiler = program(tmp_path / "bin" / name, f'test "$*" = "-pthread --version" && printf "%s" "{told}"')
    assert build.is_gcc([compiler, "-pthread"]) is is_gcc


def test_a_compiler_that_fails_is_not_gcc(build: Any, tmp_path: Path) -> None:
    """Setuptools tells the error when it compiles."""
    assert not build.is_gcc([program(tmp_path / "bin/cc", "exit 1")])


@pytest.mark.parametrize(
    ("machine", "script", "reason"),
    [
        ("x86_64", "grep -q '#if !__has_include(<bpf/bpf_core_read.h>)'", ""),
        ("aarch64", 'test "$1 $2" = "-target bpf"', ""),
        ("x86_64", "exit 1", "clang makes no BPF, or libbpf-dev is not installed"),
        ("x86_64", None, "clang is not installed"),
        ("riscv64", "exit 0", "they do not know riscv64"),
    ],
)
def test_clang_is_tried_before_it_is_used(  # noqa: PLR0917 - fixtures, and a row of the table above
    build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, script: str | None, reason: str
) -> None:
    """It is asked for BPF and for libbpf's headers. Without them, the package is built without programs."""
    clang = None if script is None else program(tmp_path / "bin/clang", script)
    monkeypatch.setattr(build, "MACHINE", machine)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin" if clang else str(tmp_path))
    assert build.find_clang() == (None if reason else clang, reason)
