"""Cgroups by their names, in file systems that a test builds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lo2io.errors import UsageError
from lo2io.kernel.cgroups import Cgroup, find_cgroup, has_processes

if TYPE_CHECKING:
    from pathlib import Path

V2 = "41 31 0:38 / /cg rw,relatime - cgroup2 cgroup2 rw\n"
V1 = "32 31 0:29 / /v1 rw shared:9 - cgroup cgroup rw,net_cls,perf_event\n"
OTHER_V1 = "33 31 0:30 / /cpu rw - cgroup cgroup rw,cpu\n"


def make(root: Path, mounts: str, *folders: str) -> Path:
    """A root with these mounts and cgroups."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text(f"23 1 8:1 / / rw - ext4 /dev/root rw\n{mounts}")
    for folder in folders:
        (root / folder).mkdir(parents=True)
        (root / folder / "cgroup.procs").touch()
    return root


@pytest.mark.parametrize("form", ["app/web", "/app/web", "{root}/cg/app/web", "/app/./web/", "app/x/../web"])
def test_a_cgroup_has_several_names(tmp_path: Path, form: str) -> None:
    """Below the mount, or in the hierarchy, with or without a slash."""
    root = make(tmp_path, OTHER_V1 + V2, "cg", "cg/app", "cg/app/web")
    found = find_cgroup(form.format(root=root), root)
    assert found == Cgroup("/app/web", root / "cg/app/web", b"")


def test_the_root_is_one(tmp_path: Path) -> None:
    """All processes are in it."""
    assert find_cgroup("/", make(tmp_path, V2, "cg")).path == "/"


def test_perf_has_a_hierarchy_of_its_own(tmp_path: Path) -> None:
    """If v1 has the controller, v2 does not."""
    root = make(tmp_path, V2 + OTHER_V1 + V1, "cg", "cg/a", "v1", "v1/b", "cpu", "cpu/c")
    assert find_cgroup("b", root) == Cgroup("/b", root / "v1/b", b"perf_event")
    for name in ("a", "c"):
        with pytest.raises(UsageError, match="there is no such cgroup below"):
            find_cgroup(name, root)


def test_a_part_of_the_hierarchy_is_mounted(tmp_path: Path) -> None:
    """As in a container: paths are the hierarchy's. Of two mounts, the one that shows more counts."""
    part = "42 31 0:38 /outer/in\\040ner /part rw - cgroup2 cgroup2 rw\n"
    root = make(tmp_path, part, "part", "part/a")
    assert find_cgroup("a", root).path == "/outer/in ner/a"
    (root / "proc/self/mountinfo").write_text(part + V2)
    (root / "cg/a").mkdir(parents=True)
    (root / "cg/a/cgroup.procs").touch()
    assert find_cgroup("a", root).path == "/a"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("app/wbe", "did you mean /app/web?"),
        ("dtabase", "did you mean /deep/inside/database?"),
        ("system.slice/nginx.service", "`cat /proc/PID/cgroup` shows the cgroup of a process"),
    ],
)
def test_near_names_are_told(tmp_path: Path, name: str, remedy: str) -> None:
    """By the path, or by its last part wherever that is."""
    root = make(tmp_path, V2, "cg", "cg/app", "cg/app/web", "cg/deep", "cg/deep/inside", "cg/deep/inside/database")
    with pytest.raises(UsageError) as caught:
        find_cgroup(name, root)
    assert caught.value.remedy == remedy


@pytest.mark.parametrize("name", ["../outside", "/cg/../outside", "plain", "{root}/outside"])
def test_what_is_no_cgroup(tmp_path: Path, name: str) -> None:
    """Folders elsewhere, and such as the kernel did not make."""
    root = make(tmp_path, V2, "cg", "outside")
    (root / "cg/plain").mkdir()
    with pytest.raises(UsageError, match="there is no such cgroup below"):
        find_cgroup(name.format(root=root), root)


def test_no_hierarchy(tmp_path: Path) -> None:
    """The remedy says what to mount."""
    with pytest.raises(UsageError) as caught:
        find_cgroup("a", make(tmp_path, OTHER_V1, "cpu", "cpu/a"))
    assert caught.value.remedy == "mount cgroup2"


def test_whether_anybody_is_there(tmp_path: Path) -> None:
    """Below counts, too."""
    root = make(tmp_path, V2, "cg", "cg/a", "cg/a/b", "cg/c")
    (root / "cg/a/b/cgroup.procs").write_text("17\n")
    assert has_processes(find_cgroup("a", root))
    assert not has_processes(find_cgroup("c", root))
