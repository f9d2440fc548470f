"""Names of the kernel's functions: listed by the kernel once, and then kept until the next boot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lo2io.bpf import kept
from lo2io.capture.events import programs
from lo2io.kernel.symbols import Function

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pytest

OWN, MODULES, NAMELESS = 0x8100, 0xC100, 0x10


def test_the_kernel_lists_its_functions_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Functions of modules are listed each time: another module may have the address by then. So is the next boot's."""
    asked = []

    def name_functions(addresses: Iterable[int]) -> dict[int, Function]:
        asked.append({*addresses})
        names = {OWN: Function("schedule", True), MODULES: Function("wait", False)}
        return {address: names[address] for address in addresses if address in names}

    monkeypatch.setattr(kept, "FOLDER", tmp_path / "kept")
    monkeypatch.setattr(kept, "_is_root", lambda: True)
    monkeypatch.setattr(kept, "kernel", lambda: ["kernel"])
    monkeypatch.setattr(programs, "name_functions", name_functions)
    every = {OWN: "schedule", MODULES: "wait"}
    assert programs._name_functions({OWN, MODULES, NAMELESS}) == every
    assert programs._name_functions({OWN, MODULES}) == every
    assert programs._name_functions({OWN}) == {OWN: "schedule"}
    assert asked == [{OWN, MODULES, NAMELESS}, {MODULES}]
    monkeypatch.setattr(programs.procfs, "read_boot_id", lambda: "another")
    assert programs._name_functions({OWN}) == {OWN: "schedule"}
    assert asked[2:] == [{OWN}]
