#!/usr/bin/env python3
"""Install the otf2 package into the environment of the Python that runs this, without compiling it.

The package has wheels for Python 3.11 and older only; elsewhere pip compiles libotf2 for eight minutes. A wheel holds
plain Python and a library that is loaded by ctypes, so it serves later Pythons as well, once its library has the name
that the package looks for there. Only tests, and readers written in Python, need the package.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

WITH_WHEEL = "3.11"
"""The latest Python for which PyPI has a wheel."""


def install(folder: Path) -> Path:
    """Put the package into a folder, unless it is there; return the file of its library."""
    if not list(folder.glob("_otf2/_otf2.*.so")):
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
        wheel = ["--only-binary", ":all:", "--python-version", WITH_WHEEL, "otf2>=3.0"]
        subprocess.run([*pip, "--target", folder, *wheel], check=True)
    (library,) = folder.glob("_otf2/_otf2.*.so")
    return library.replace(library.with_name(f"_otf2{sysconfig.get_config_var('EXT_SUFFIX')}"))


if __name__ == "__main__":
    print(install(Path(sysconfig.get_path("platlib"))))
