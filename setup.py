"""What pyproject.toml cannot declare: cffi builds the native part, and clang the programs in the kernel."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Command, find_packages, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

PROGRAMS = Path("lo2io/bpf/programs")
OBJECTS = (PROGRAMS / "lo2io.bpf.o", PROGRAMS / "looks.bpf.o")
MACHINE = sysconfig.get_platform().partition("-")[2]
"""The machine to build for. _PYTHON_HOST_PLATFORM=linux-aarch64 sets another than this one."""
ARCHITECTURES = {"x86_64": "x86", "aarch64": "arm64"}
"""Machines on which the programs can read a call's arguments: machine → libbpf's name."""
FLAGS = ("-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Wno-unused-parameter")
"""-g: types, with which libbpf sets the running kernel's offsets; v3: atomics and 32 bit jumps, Linux 5.12."""
TOGETHER = "-flto=auto"
"""Optimize all files as one, which makes converting faster. Clang has this only with a linker that many lack."""
HEADERS = "#if !__has_include(<bpf/bpf_core_read.h>)\n#error libbpf-dev\n#endif\n"


class BuildNative(build_ext):
    """Compile the files of lo2io/native, as many at a time as there are CPUs: setuptools takes one after another."""

    def build_extensions(self) -> None:
        """Give the compiler each file by itself."""
        if is_gcc(self.compiler.compiler_so):
            for extension in self.extensions:
                extension.extra_compile_args.append(TOGETHER)
                extension.extra_link_args.append(TOGETHER)
        compile_one = self.compiler.compile

        def compile_all(sources: list[str], **options: Any) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                objects = pool.map(lambda source: compile_one([source], **options), sources)
                return [name for names in objects for name in names]

        self.compiler.compile = compile_all
        super().build_extensions()


def is_gcc(compiler: list[str]) -> bool:
    """True if the command runs GCC, whatever its name."""
    told = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=False).stdout
    return "Free Software Foundation" in told


class BuildPrograms(Command):
    """Compile lo2io/bpf/programs. Without clang or libbpf's headers, the package has none, and records by perf."""

    description = "compile the kernel programs with clang"
    user_options = []  # noqa: RUF012 # setuptools asks for it as a plain class attribute
    editable_mode = False
    build_lib: str | None = None

    def initialize_options(self) -> None:
        """Set no option: other commands have them."""

    def finalize_options(self) -> None:
        """Take the folder in which the package is put together."""
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def run(self) -> None:
        """Compile beside the source or into the package, or print why not."""
        targets = [Path(name) for name in self.get_outputs()]
        clang, reason = find_clang()
        if clang is None:
            for target in targets:
                target.unlink(missing_ok=True)  # of an older source
            print(f"lo2io: built without kernel programs: {reason}", file=sys.stderr)
            return
        for target in targets:
            compile_programs(clang, target)

    def get_source_files(self) -> list[str]:
        """The files that a source distribution must hold."""
        return sorted(str(path) for path in PROGRAMS.glob("*.[ch]"))

    def get_outputs(self) -> list[str]:
        """The objects. In an editable installation, they lie beside their sources."""
        folder = Path() if self.editable_mode or self.build_lib is None else Path(self.build_lib)
        return [str(folder / each) for each in OBJECTS]

    def get_output_mapping(self) -> dict[str, str]:
        """Empty, for nothing is copied."""
        return {}


def compile_programs(clang: str, target: Path) -> None:
    """Compile the source of the same name into an object."""
    target.parent.mkdir(parents=True, exist_ok=True)
    made = target.with_suffix(f".{os.getpid()}.o")
    define = f"-D__TARGET_ARCH_{ARCHITECTURES[MACHINE]}"
    source = PROGRAMS / target.with_suffix(".c").name
    subprocess.run([clang, *FLAGS, define, "-c", str(source), "-o", str(made)], check=True)
    strip = shutil.which("llvm-strip")
    if strip:  # of debugging information, which is most of the object; the types stay
        subprocess.run([strip, "-g", str(made)], check=True)
    made.replace(target)


def find_clang() -> tuple[str | None, str]:
    """A clang that compiles BPF and finds libbpf's headers, or why there is none."""
    if MACHINE not in ARCHITECTURES:
        return None, f"they do not know {MACHINE}"
    clang = shutil.which("clang")
    if clang is None:
        return None, "clang is not installed"
    tried = subprocess.run(
        [clang, "-target", "bpf", "-fsyntax-only", "-x", "c", "-"],
        input=HEADERS,
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        return None, "clang makes no BPF, or libbpf-dev is not installed"
    return clang, ""


write_manual = runpy.run_path("scripts/man_pages.py")["write"]
build.sub_commands = [*build.sub_commands, ("build_bpf", None)]
setup(
    packages=[*find_packages(include=["lo2io", "lo2io.*"]), "lo2io.tracepoints"],
    cffi_modules=["lo2io/native/build.py:ffibuilder"],
    cmdclass={"build_ext": BuildNative, "build_bpf": BuildPrograms},
    data_files=[("share/man/man1", write_manual(Path(".cache/man")))],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},  # one wheel for Python 3.11 and all later ones
)
