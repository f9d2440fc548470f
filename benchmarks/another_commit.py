"""Another commit of lo2io, built beside this one, as one more competitor in the turns."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from common import HERE, Baseline, BenchError, answer

if TYPE_CHECKING:
    from pathlib import Path

ROOT = HERE.parent
REFERENCE = "8be1714"
"""The commit that `make bench` compares with: the last one of 2026-11-21."""


def build_commit(name: str) -> Baseline:
    """Build a commit with an environment of its own, in ``.cache/lo2io-COMMIT``; once built, it stays.

    Raises:
        BenchError: The commit is not in the history, or cannot be built.
    """
    try:
        commit = answer("git", "-C", ROOT, "rev-parse", "--short=7", "--verify", f"{name}^{{commit}}").strip()
    except BenchError as error:
        raise BenchError(f"no commit {name} in the history of {ROOT}: `--baseline none` does without") from error
    folder = ROOT / ".cache" / f"lo2io-{commit}"
    program = folder / ".venv/bin/lo2io"
    if not (folder / ".built").exists():
        print(f"building {commit} in {folder}", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        _unpack(commit, folder)
        answer(folder / "scripts/setup.sh", "demo")
        answer(program, "--help")
        (folder / ".built").touch()
    return Baseline(commit, program)


def _unpack(commit: str, folder: Path) -> None:
    """The commit's files, without git's: a worktree would stay registered after its folder is gone."""
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
