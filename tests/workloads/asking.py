"""Makes known requests to a file system, each in a call of its own. The first argument is a folder of the file system.

Prints its process id.
"""

import contextlib
import os
import sys
from pathlib import Path

BLOCK, FAR = 4096, 65536


def work(folder: str) -> None:
    """Read far apart and once more, look for a missing file, write a new one and sync it, and list the folder."""
    old = os.open(f"{folder}/old", os.O_RDONLY)
    for place in range(4):
        os.pread(old, BLOCK, place * FAR)
    os.pread(old, BLOCK, 0)  # in the page cache: nobody is asked
    os.close(old)
    with contextlib.suppress(FileNotFoundError):
        Path(folder, "missing").stat()
    new = os.open(f"{folder}/new", os.O_CREAT | os.O_WRONLY)
    os.write(new, bytes(BLOCK + 1))
    os.fsync(new)
    os.close(new)
    Path(folder, "new").rename(f"{folder}/newer")
    list(Path(folder).iterdir())
    Path(folder, "newer").unlink()


if __name__ == "__main__":
    print(os.getpid(), flush=True)
    work(sys.argv[1])
