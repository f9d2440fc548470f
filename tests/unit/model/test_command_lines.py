"""Command lines as people read them, and the names that tell processes apart."""

from __future__ import annotations

import shlex

import pytest

from lo2io.model.command_lines import arguments_of, command_line, process_name


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        ("cat\0-n\0/etc/passwd\0", "cat -n /etc/passwd"),
        ("sh\0-c\0echo $HOME; ls\0", "sh -c 'echo $HOME; ls'"),
        ("grep\0\0f", "grep '' f"),
        ("postgres: checkpointer ", "postgres: checkpointer"),
        ("srv: idle\0\0\0", "srv: idle"),
        ("true\0", "true"),
    ],
)
def test_lines(raw: str, line: str) -> None:
    """Arguments as a shell takes them; a title, which has no zero bytes, as it is."""
    assert command_line(raw) == line
    if "\0" in raw.rstrip("\0"):
        assert arguments_of(line) == raw.rstrip("\0").split("\0")


@pytest.mark.parametrize(
    ("comm", "arguments", "name"),
    [
        ("postgres", ["postgres: checkpointer"], "postgres: checkpointer"),
        ("postgres", ["/usr/lib/postgresql/15/bin/postgres", "-D", "/data"], "postgres"),
        ("nginx", ["nginx: worker process"], "nginx: worker process"),
        ("python3", ["python3", "-u", "/srv/app.py", "--port", "80"], "python3 app.py"),
        ("python3", ["/usr/bin/python3", "-W", "ignore", "-m", "http.server"], "python3 -m http.server"),
        ("python3", ["python3", "-Im", "pkg"], "python3 -m pkg"),
        ("python3", ["python3", "-c", "import os; os.fork()"], "python3 -c"),
        ("python3", ["python3"], "python3"),
        ("python3", ["python3", "-"], "python3"),
        ("app.py", ["/usr/bin/python3", "./app.py"], "python3 app.py"),
        ("worker-7", ["python3", "app.py"], "worker-7"),
        ("java", ["java", "-Xmx1g", "-cp", "a.jar:b.jar", "org.x.Main", "-v"], "java org.x.Main"),
        ("java", ["java", "-esm", "org.x.Main"], "java org.x.Main"),
        ("java", ["java", "-jar", "/opt/x.jar"], "java -jar x.jar"),
        ("java", ["java", "--module-path", "m", "-m", "app/org.x.Main"], "java -m org.x.Main"),
        ("node", ["node", "-r", "dotenv/config", "app.js"], "node app.js"),
        ("perl", ["perl", "-w", "-I", "lib", "t/a.t"], "perl a.t"),
        ("ruby", ["ruby", "-e", "p 1"], "ruby -e"),
        ("sh", ["sh", "-ec", "make"], "sh -c"),
        ("bash", ["-bash"], "bash"),
        ("cat", ["cat", "python3"], "cat"),
    ],
)
def test_names(comm: str, arguments: list[str], name: str) -> None:
    """A title, an interpreter with its script, and else the kernel's name, also if the program changed it."""
    line = arguments[0] if len(arguments) == 1 else shlex.join(arguments)
    assert process_name(comm, line) == name


def test_unknown_stays_unknown() -> None:
    """Without a command line the name is the kernel's, or none; a long title is cut."""
    assert process_name("io", None) == "io"
    assert process_name(None, None) is None
    name = process_name("postgres", "postgres: " + 100 * "x")
    assert name is not None
    assert (len(name), name[-1]) == (60, "…")
