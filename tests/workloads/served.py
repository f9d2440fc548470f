"""``lo2io``, forked from a process that has already loaded its libraries.

The import of NumPy and Arrow takes longer than most recordings of the tests. A server imports them once, and forks for
each command. The command is the same from ``main()`` on. Tests of what comes before, of signals, and of several
commands at once start the program itself.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

import lo2io as package
from lo2io import __main__ as program
from lo2io.libraries import prepare_libraries

if TYPE_CHECKING:
    from collections.abc import Sequence

LIBRARIES = ("numpy.ma", "pyarrow.compute", "pyarrow.ipc", "rich.console", "rich.table", "tomllib")
"""Those that modules of lo2io import only when they need them."""
BUILD = "lo2io.native.build"
"""The script that setup.py runs."""
PR_SET_NAME = 15
MODES = ("rb", "wb")
PROGRAM = Path(sys.executable).parent / "lo2io"
_started: list[subprocess.Popen[bytes]] = []


def lo2io(
    *words: object,
    stdin: str | Path = os.devnull,
    cwd: str | Path | None = None,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as ``subprocess.run`` does with captured output.

    Args:
        words: The command line after ``lo2io``.
        stdin: The file to read from.
        cwd: Its working directory; None: that of the tests.
        check: Whether it must succeed.

    Raises:
        subprocess.CalledProcessError: It must succeed, and did not.
    """
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with contextlib.ExitStack() as stack:
        pipes = [
            [stack.enter_context(os.fdopen(fd, mode, 0)) for fd, mode in zip(os.pipe(), MODES, strict=True)]
            for _ in range(2)
        ]
        order = {
            "words": [os.fspath(word) if isinstance(word, Path) else str(word) for word in words],
            "streams": [os.fspath(stdin), *(f"/proc/{os.getpid()}/fd/{writer.fileno()}" for _, writer in pipes)],
            "cwd": os.fspath(cwd or Path.cwd()),
            "env": dict(os.environ),
        }
        stack.callback(_kill_if_busy, server)
        server.stdin.write(json.dumps(order).encode() + b"\n")
        server.stdin.flush()
        readers = [reader for reader, _ in pipes]
        out, err = _read_until(server.stdout, readers)
        answer = server.stdout.readline()
        assert answer, "the server has ended"
    done = subprocess.CompletedProcess(["lo2io", *order["words"]], int(answer), out, err)
    if check:
        done.check_returncode()
    return done


def _read_until(answer: IO[bytes], readers: Sequence[IO[bytes]]) -> list[str]:
    """All that the pipes tell until the answer comes."""
    told = dict.fromkeys(readers, b"")
    with selectors.DefaultSelector() as selector:
        for file in (answer, *readers):
            os.set_blocking(file.fileno(), file is answer)
            selector.register(file, selectors.EVENT_READ)
        ended = False
        while not ended:
            ended = any(key.fileobj is answer for key, _ in selector.select())
            for reader in readers:  # all is in the pipes before the answer comes
                while chunk := reader.read(1 << 16):
                    told[reader] += chunk
    return [text.decode() for text in told.values()]


def _kill_if_busy(server: subprocess.Popen[bytes]) -> None:
    """End the server if its command has not ended: the test was stopped. The next test must not read its answer."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text(encoding="ascii").split()
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    if children:
        _started.clear()
        server.kill()
        with server:  # closes its pipes
            pass


def close() -> None:
    """End the server, if there is one."""
    while _started:
        with _started.pop() as server:
            assert server.stdin is not None
            server.stdin.close()


def _server() -> subprocess.Popen[bytes]:
    if not _started:
        command = [sys.executable, "-m", "workloads.served"]
        places = (str(Path(__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
        # Not in the folder of the test that happens to be the first, which may be on a disk that is taken away.
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd="/")
        _started.append(server)
        atexit.register(close)
    return _started[0]


def _serve() -> None:
    """Run one command after another; tell each one's exit code, negative for a signal."""
    prepare_libraries()
    own = [module.name for module in pkgutil.walk_packages(package.__path__, "lo2io.") if module.name != BUILD]
    for name in (*LIBRARIES, *own):
        importlib.import_module(name)
    gc.freeze()  # what is loaded is not looked through again by each command
    for line in sys.stdin.buffer:
        pid = os.fork()
        if not pid:
            _become(json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _become(order: dict[str, Any]) -> NoReturn:
    """Be the program, in a process that was just forked."""
    code = 1
    try:
        for number, (path, flags) in enumerate(
            zip(order["streams"], (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY), strict=True)
        ):
            fd = os.open(path, flags | os.O_APPEND * (number > 0))
            os.dup2(fd, number)
            os.close(fd)
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)  # the server's has read ahead
        os.environ.clear()
        os.environ.update(order["env"])
        os.chdir(order["cwd"])
        ctypes.CDLL(None).prctl(PR_SET_NAME, b"lo2io")
        sys.argv = [str(PROGRAM), *order["words"]]
        sys.modules["__main__"].__package__ = None  # as of a program in PATH, not of `python -m`
        program.main()
        code = 0
    except BaseException:  # noqa: BLE001 - the server must not go on twice
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
