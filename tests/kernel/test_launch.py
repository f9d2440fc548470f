"""The command under lo2io has the same streams, signals, exit code and rights as without."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lo2io.capture import waiting
from lo2io.capture.launch import StoppedCommand, User, find_program, resolve_user
from lo2io.errors import AccessError, CommandError, UsageError
from lo2io.spool.reader import SpoolReader

if TYPE_CHECKING:
    from collections.abc import Callable

EVENTS = ("syscalls:sys_enter_pwrite64",)
RECORDS = pytest.mark.requires("root", "tracefs", "events", "syscalls:sys_enter_pwrite64")


def run(command: tuple[str, ...], user: User | None = None) -> int:
    """Start, release, wait: like a recording, without recording."""
    with waiting.BlockedSignals() as signals:
        child = StoppedCommand(command, user, signals.before, signals.ignored)
        child.release()
        return waiting.wait_for_command(child.pid, signals)


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -TERM $$", 143), ("kill -KILL $$", 137)],
)
def test_the_exit_code_is_the_commands(script: str, code: int) -> None:
    """128 + n after a signal, as in shells."""
    assert run(("sh", "-c", script)) == code


def test_it_does_not_run_before_it_is_released(tmp_path: Path) -> None:
    """Nothing of the command runs while events are being opened, nor after a failure."""
    made = tmp_path / "made"
    child = StoppedCommand(("touch", str(made)), None)
    child.abandon()
    child.abandon()
    assert not made.exists()
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, 0)
    assert run(("touch", str(made))) == 0
    assert made.exists()


@pytest.mark.parametrize(
    ("content", "mode", "code"),
    [
        (None, 0, 127),
        ("exit 4", 0o755, 4),
        ("exit 4", 0o644, 126),
        ("#!/no/such\n", 0o755, 127),
        ("#!/bin/sh\nexit 6", 0o755, 6),
    ],
)
def test_programs_that_cannot_be_executed(tmp_path: Path, content: str | None, mode: int, code: int) -> None:
    """127 if something does not exist, 126 if it may not be executed; sh runs a script without an interpreter."""
    program = tmp_path / "program"
    if content is not None:
        program.write_text(content)
        program.chmod(mode)
    if code in {4, 6}:
        assert find_program(str(program)) == program
        assert run((str(program),)) == code
        return
    with pytest.raises(CommandError, match="program") as caught:
        run((str(program),))
    assert caught.value.exit_code == code
    assert caught.value.remedy
    if content is None or not mode & 0o111:
        with pytest.raises(CommandError) as early:
            find_program(str(program))
        assert early.value.exit_code == code


def test_programs_are_found_as_the_shell_finds_them(tmp_path: Path) -> None:
    """The first executable of the folders, past other files; folders are no programs."""
    for name, mode in (("a", 0o644), ("b", 0o755)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tool").write_text("")
        (tmp_path / name / "tool").chmod(mode)
    folders = [str(tmp_path / "none"), str(tmp_path / "a"), str(tmp_path / "b")]
    assert find_program("tool", folders) == tmp_path / "b/tool"
    for name, where, code in (("tool", folders[:2], 126), ("tool", folders[:1], 127), ("", folders, 127)):
        with pytest.raises(CommandError) as caught:
            find_program(name, where)
        assert caught.value.exit_code == code, (name, where)
    with pytest.raises(CommandError, match="is a directory"):
        find_program(str(tmp_path))


def test_signal_masks_and_dispositions_are_the_users() -> None:
    """It blocks and ignores the same signals as a command that was started directly."""
    show = ("grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status")
    direct = subprocess.run(show, capture_output=True, text=True, check=True, preexec_fn=None).stdout
    code = (
        "import sys; sys.path.insert(0, '.');"
        "from lo2io.capture import waiting as wait; from lo2io.capture.launch import StoppedCommand\n"
        "with wait.BlockedSignals() as signals:\n"
        f"    child = StoppedCommand({show!r}, None, signals.before, signals.ignored); child.release()\n"
        "    sys.exit(wait.wait_for_command(child.pid, signals))"
    )
    assert subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True).stdout == direct
    for ignored in ("HUP", "CHLD"):
        shell = f'trap "" {ignored}; exec "$@"'
        want = subprocess.run(("sh", "-c", shell, "sh", *show), capture_output=True, text=True, check=True).stdout
        got = subprocess.run(
            ("sh", "-c", shell, "sh", sys.executable, "-c", code), capture_output=True, text=True, check=True
        ).stdout
        assert got == want


@RECORDS
def test_streams_environment_and_folder_are_the_users(recorder: Callable[..., list[str]], tmp_path: Path) -> None:
    """Input and output pass through unchanged; lo2io itself writes nothing to stdout."""
    line = recorder(
        spool=str(tmp_path / "spool"),
        events=EVENTS,
        command=("sh", "-c", 'cat; echo "$MARK"; pwd; echo err >&2; exit 3'),
    )
    result = subprocess.run(
        line, input=b"a\0b", capture_output=True, check=False, cwd=tmp_path, env={**os.environ, "MARK": "mark"}
    )
    assert (result.returncode, result.stdout) == (3, b"a\0bmark\n" + os.fsencode(tmp_path) + b"\n")
    assert result.stderr.endswith(b"err\n")
    meta = SpoolReader(tmp_path / "spool").meta
    assert (meta.exit_code, meta.command[0]) == (3, "sh")


@RECORDS
def test_the_command_gets_no_fd_of_lo2io(recorder: Callable[..., list[str]], tmp_path: Path) -> None:
    """It has its three streams and the files that it opens, and the user's limits."""
    show = ("sh", "-c", "ls -l /proc/self/fd; ulimit -n")
    line = recorder(spool=str(tmp_path / "spool"), events=EVENTS, command=show)
    result = subprocess.run(line, input="", capture_output=True, text=True, check=True)
    names = [row.split()[8] for row in result.stdout.splitlines() if "->" in row]
    assert names == ["0", "1", "2", "3"]
    direct = subprocess.run(show, input="", capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == direct.stdout.splitlines()[-1]


@RECORDS
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_signals_to_lo2io_reach_the_command(
    recorder: Callable[..., list[str]], tmp_path: Path, number: signal.Signals
) -> None:
    """The command decides what to do; the spool is whole and the exit code the command's."""
    trap = f'trap "echo got; exit 7" {number.name[3:]}; echo ready; while :; do sleep 0.05; done'
    line = recorder(spool=str(tmp_path / "spool"), events=EVENTS, command=("sh", "-c", trap))
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.communicate()[0] == "got\n"
    assert process.returncode == 7
    assert SpoolReader(tmp_path / "spool").meta.complete


@RECORDS
def test_a_command_killed_by_a_forwarded_signal(recorder: Callable[..., list[str]], tmp_path: Path) -> None:
    """128 + n, and a complete spool."""
    line = recorder(spool=str(tmp_path / "spool"), events=EVENTS, command=("sh", "-c", "echo ready; exec sleep 60"))
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert SpoolReader(tmp_path / "spool").meta.exit_code == 128 + signal.SIGTERM


@RECORDS
def test_the_terminals_interrupt_reaches_the_command_once(recorder: Callable[..., list[str]], tmp_path: Path) -> None:
    """Ctrl-C goes to the whole foreground group. If lo2io passed it on, the command would get it twice."""
    code = (
        "import signal, sys\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\n"
        "print('ready', flush=True)\n"
        "got = 0\n"
        "while signal.sigtimedwait({signal.SIGINT}, 1 if got else 60): got += 1\n"
        "sys.exit(10 + got)\n"
    )
    line = recorder(spool=str(tmp_path / "spool"), events=EVENTS, command=(sys.executable, "-c", code))
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(line[0], line)  # noqa: S606 - no shell is wanted
    shown = b""
    while b"ready" not in shown:
        shown += os.read(terminal, 1000)
    os.write(terminal, b"\x03")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 11, shown
    assert SpoolReader(tmp_path / "spool").meta.complete


@pytest.mark.requires("root")
def test_the_command_runs_as_the_user_and_lo2io_does_not() -> None:
    """Uid, gid and groups are all the user's: no right remains."""
    user, notice = resolve_user("nobody")
    assert user is not None
    assert notice == ""
    show = f'test "$(id -u):$(id -ru):$(id -g):$(id -G)" = "{user.uid}:{user.uid}:{user.gid}:{user.gid}"'
    no_rights = "grep -q '^CapEff:.0*$' /proc/self/status"
    groups = os.getgroups()
    os.setgroups([4, 5])
    try:
        assert run(("sh", "-c", f"{show} && {no_rights}"), user) == 0
    finally:
        os.setgroups(groups)
    assert os.geteuid() == 0


@pytest.mark.requires("root")
def test_the_command_gets_no_ambient_capability() -> None:
    """Capabilities from setpriv or systemd are for lo2io only."""
    line = (sys.executable, "-c", _AMBIENT)
    lent = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=+sys_nice")
    done = subprocess.run((*lent, "--ambient-caps=+sys_nice", *line), check=False, capture_output=True, text=True)
    assert done.stdout == "CapEff 0000000000800000\nCapEff 0000000000000000\n", done.stderr


_AMBIENT = """
import os, signal
from lo2io.capture.launch import StoppedCommand
own = [line for line in open("/proc/self/status") if line.startswith("CapEff")][0]
print(own.replace(":\t", " "), end="", flush=True)
command = StoppedCommand(("sed", "-n", "s/^CapEff:.*\t/CapEff /p", "/proc/self/status"), None, frozenset(), frozenset())
command.release()
os.waitpid(command.pid, 0)
"""


@pytest.mark.requires("root")
def test_sudos_caller_is_the_default_and_root_is_a_choice() -> None:
    """With a notice, for the user was not named; an unknown user is an error."""
    user, notice = resolve_user(None, {"SUDO_UID": "65534"})
    assert user is not None
    assert user.uid == 65534
    assert "called sudo" in notice
    assert resolve_user("root", {"SUDO_UID": "65534"}) == (None, "")
    assert resolve_user(None, {}) == (None, "")
    assert resolve_user(None, {"SUDO_UID": "0"}) == (None, "")
    with pytest.raises(UsageError, match="no such user"):
        resolve_user("no-such-user-here")


def test_others_than_root_cannot_choose_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes before anything starts."""
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(AccessError, match="only root"):
        resolve_user("root")
    assert resolve_user(None, {"SUDO_UID": "65534"}) == (None, "")


def test_only_processes_can_be_attached_to(until: Callable[[Callable[[], object]], object]) -> None:
    """A dead pid and a thread's id are errors with a remedy."""
    child = subprocess.Popen(("true",))
    child.wait()
    with pytest.raises(UsageError, match="no such process"):
        waiting.check_processes((child.pid,))
    code = "import threading, sys; threading.Thread(target=sys.stdin.read).start()"
    with subprocess.Popen((sys.executable, "-c", code), stdin=subprocess.PIPE) as process:
        tasks = Path(f"/proc/{process.pid}/task")
        until(lambda: len(list(tasks.iterdir())) == 2)
        waiting.check_processes((process.pid,))
        (thread,) = {int(path.name) for path in tasks.iterdir()} - {process.pid}
        with pytest.raises(UsageError, match="it is a thread") as caught:
            waiting.check_processes((thread,))
        assert str(process.pid) in caught.value.remedy
        process.communicate(b"")


def test_signals_other_threads_get_are_remembered(until: Callable[[Callable[[], object]], object]) -> None:
    """A library's thread that blocks nothing gets a signal while the main thread is busy; it is not lost."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        with waiting.BlockedSignals() as signals:
            command = ("sh", "-c", 'trap "exit 9" TERM; while :; do sleep 0.05; done')
            child = StoppedCommand(command, None, signals.before, signals.ignored)
            child.release()
            status = Path(f"/proc/{child.pid}/status")
            until(lambda: re.search(r"SigCgt:.*[4-7c-f]...$", status.read_text(), re.MULTILINE))
            os.kill(os.getpid(), signal.SIGTERM)
            assert waiting.wait_for_command(child.pid, signals) == 9
        with pytest.raises(KeyboardInterrupt), waiting.BlockedSignals() as signals:  # noqa: PT012 - it is leaving that raises
            os.kill(os.getpid(), signal.SIGINT)
            until(lambda: signals._caught)  # the other thread takes it when it gets a CPU
    finally:
        end.set()
        thread.join()
