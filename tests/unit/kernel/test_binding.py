"""The perf binding is found where distributions put it, and nothing else passes for it."""

from __future__ import annotations

import importlib.machinery
import shutil
from typing import TYPE_CHECKING

import pytest

from lo2io.errors import AccessError
from lo2io.kernel import binding

if TYPE_CHECKING:
    from pathlib import Path

SUFFIX = importlib.machinery.EXTENSION_SUFFIXES[0]


def place(root: Path, folder: str, name: str = f"perf{SUFFIX}") -> Path:
    """An empty file where a distribution would put the binding."""
    path = root / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_debian_comes_before_kernel_folders(tmp_path: Path) -> None:
    """The distribution's own place is tried first, then the newest kernel's by number, not by spelling."""
    old = place(tmp_path, "usr/lib/linux-tools/6.8.0-9-generic")
    new = place(tmp_path, "usr/lib/linux-tools/6.8.0-31-generic")
    debian = place(tmp_path, "usr/lib/python3/dist-packages")
    assert list(binding.candidates(tmp_path)) == [debian, new, old]


def test_fedora_by_python_version(tmp_path: Path) -> None:
    """A binding built for another Python minor version is no candidate."""
    place(tmp_path, "usr/lib64/python3.9/site-packages")
    mine = place(tmp_path, "usr/lib64/python3.12/site-packages")
    assert list(binding.candidates(tmp_path, version="3.12")) == [mine]


def test_foreign_extension_is_refused(tmp_path: Path) -> None:
    """A module that only has the name is refused, with its lack."""
    path = place(tmp_path, "usr/lib/python3/dist-packages")
    path.write_bytes(b"not ELF")
    binding.find_binding.cache_clear()
    with pytest.raises(AccessError, match=r"invalid ELF header|file too short"):
        binding.find_binding(tmp_path)


def test_module_without_evlist_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pyperf and its like have no ``evlist``."""
    monkeypatch.setattr(binding, "_NEEDED", ("evlist_of_another_world",))
    try:
        real = next(binding.candidates())
    except StopIteration:
        pytest.skip("no perf binding on this machine: " + binding.install_command())
    copy = place(tmp_path, "usr/lib/python3/dist-packages", real.name)
    shutil.copy(real, copy)
    with pytest.raises(ImportError, match="no evlist_of_another_world: this is not the kernel's binding"):
        binding.load(copy)


@pytest.mark.parametrize(
    ("os_release", "command"),
    [
        ("ID=debian\n", "sudo apt-get install linux-perf"),
        ("ID=raspbian\nID_LIKE=debian\n", "sudo apt-get install linux-perf"),
        ('NAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian\n', "linux-tools-generic"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "sudo dnf install python3-perf"),
        ("ID=nixos\n", "make -C tools/perf"),
    ],
)
def test_remedy_names_the_package(tmp_path: Path, os_release: str, command: str) -> None:
    """The error names the package of the binding on this distribution."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text(os_release)
    binding.find_binding.cache_clear()
    with pytest.raises(AccessError) as raised:
        binding.find_binding(tmp_path)
    assert command in raised.value.remedy


def test_other_python_is_named(tmp_path: Path) -> None:
    """A binding for another interpreter is mentioned, since it explains why an installed package does not help."""
    place(tmp_path, "usr/lib/python3/dist-packages", "perf.cpython-32-x86_64-linux-gnu.so")
    binding.find_binding.cache_clear()
    with pytest.raises(AccessError, match="for another Python"):
        binding.find_binding(tmp_path)
