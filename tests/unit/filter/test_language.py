"""The filter language: its meaning, its refusals with their places, and its complete text form."""

from __future__ import annotations

import fnmatch
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lo2io.errors import UsageError
from lo2io.filter.globs import compile_glob, escape_glob
from lo2io.filter.language import (
    FIELDS,
    OPERATORS,
    PATHS,
    Comparison,
    Filter,
    Kind,
    below_cgroup,
    opcode_numbers,
    operation_names,
)
from lo2io.filter.parser import parse, parse_all
from lo2io.model import RequestOp


def one(text: str) -> Comparison:
    """The only comparison of a filter."""
    (comparison,) = parse(text).comparisons
    return comparison


@pytest.mark.parametrize(
    ("text", "field", "operator", "values"),
    [
        ("device == vda", "device", "==", ("vda",)),
        ("size >= 64KiB", "size", ">=", (65536,)),
        ("size!=4096", "size", "!=", (4096,)),
        ("latency>1.5ms", "latency", ">", (1_500_000,)),
        ("latency <= 250us", "latency", "<=", (250_000,)),
        ("comm ~ fio*", "comm", "~", ("fio*",)),
        ("comm == 'a \\'b\\\\'", "comm", "==", ("a 'b\\",)),
        ('path !~ "/data/**"', "path", "!~", ("/data/**",)),
        ("operation == read, write", "operation", "==", ("read", "write")),
        ("operation ~ 'pread*'", "operation", "~", ("pread*",)),
        ("pid == 1234,1235,1234", "pid", "==", (1234, 1235)),
        ("tid != 7", "tid", "!=", (7,)),
        ("cgroup ~ '/system.slice/*'", "cgroup", "~", ("/system.slice/*",)),
        ("kind == request", "kind", "==", ("request",)),
        ("kind != ring", "kind", "!=", ("ring",)),
        ("opcode == READ_FIXED, readv", "opcode", "==", ("READ_FIXED", "READV")),
        ("opcode !~ 'write*'", "opcode", "!~", ("WRITE*",)),
        ("via == worker, poll", "via", "==", ("worker", "poll")),
        ("pid ==\t1,\n  2", "pid", "==", (1, 2)),
    ],
)
def test_a_comparison(text: str, field: str, operator: str, values: tuple[int | str, ...]) -> None:
    """Field, operator and typed values."""
    assert one(text) == Comparison(field, operator, values)


@pytest.mark.parametrize(
    "text",
    [
        "pid == 1 and comm ~ x*",
        "pid == 1 AND comm ~ 'x*'",
        "pid == 1 && comm ~ x*",
        "pid==1&&comm~x*",
        "\n pid == 1\n\ncomm ~ x*\n",
        "pid == 1 and\ncomm ~ x*",
        "pid == 1\nand comm ~ x*",
        "pid == 1 and pid == 1 and comm ~ x*",
    ],
)
def test_ways_to_join(text: str) -> None:
    """``and``, ``&&`` and the end of a line mean the same, and a repetition adds nothing."""
    assert str(parse(text)) == "pid == 1 and comm ~ x*"


def test_several_filters_must_all_hold() -> None:
    """Like ``--filter`` given twice; none, or an empty one, lets everything pass."""
    assert parse_all(["pid == 1", "", "comm == x"]) == parse("pid == 1 and comm == x")
    assert not parse_all([])
    assert not parse(" \n ")
    assert str(Filter()) == ""


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("devic == vda", "devic", "did you mean device?"),
        ("a == 1", "a", "fields are pid, tid,"),
        ("device = vda", "= vda", "write =="),
        ("device vda", "vda", "after device stands ==, !=, ~ or !~"),
        ("device", "", "after device stands"),
        ("pid < 4", "< 4", "pid takes == or !="),
        ("size ~ 4", "~ 4", "size takes =="),
        ("size >= 64Ki", "64Ki", "64KiB"),
        ("size > 1, 2", ", 2", "any of several"),
        ("latency > 100", "100", "give it a unit"),
        ("latency > 200d", "200d", "give it a unit"),
        ("latency > 99999999h", "99999999h", "less than"),
        ("pid == 4294967296", "4294967296", "less than"),
        ("pid == 99999999999999999999999", "99999", "write a number"),
        ("pid == x", "x", "write a number"),
        ("pid ==", "", "pid is compared with a number"),
        ("pid == 1,", "", "pid is compared with"),
        ("pid == and comm == x", "and", "pid is compared with"),
        ("pid == 1 and", "", "fields are"),
        ("pid == 1 or comm == x", "or comm", "any of them"),
        ("pid == 1 || comm == x", "|| comm", "any of them"),
        ("(pid == 1)", "(pid", "all comparisons must hold"),
        ("comm == (x)", "(x)", "quote a value"),
        ("not pid == 1", "not", "write != or !~"),
        ("comm ~ [!a]*", "!a", "quote a value"),
        ("comm ~ '[z-a]'", "'[z-a]'", "[*] is a star"),
        ("comm == 'x", "'x", "end the value with '"),
        ("pid == 1 comm == x", "comm", "joined by `and`"),
        ("operation == raed", "raed", "did you mean read"),
        ("operation ~ 'xyz*'", "'xyz*'", "one of read, write"),
        ("kind == cal", "cal", "did you mean call?"),
        ("opcode == READF", "READF", "did you mean READ"),
        ("opcode ~ 'X*'", "'X*'", "one of NOP, READV"),
        ("opcode > NOP", "> NOP", "opcode takes ==, !=, ~ or !~"),
        ("via == workers", "workers", "did you mean worker? one of inline, device, poll, worker, refused, cancelled"),
        ("via == unknown", "unknown", "one of inline"),
        ("via ~ w*", "~ w*", "via takes == or !="),
        ("pid == 1\ndevic == x", "devic", "did you mean device?"),
        (", pid == 1", ", pid", "joined by"),
        ("'pid' == 1", "'pid'", "field operator value"),
    ],
)
def test_refusals_point_at_the_place(text: str, place: str, said: str) -> None:
    """A line of the filter, a caret below the place, and what may stand there."""
    with pytest.raises(UsageError) as caught:
        parse(text)
    error = caught.value
    _, line, caret = error.answer.split("\n")
    assert line.strip() in text
    assert line[caret.index("^") :].startswith(place)
    assert (caret.index("^") == len(line)) is (place == "")
    assert said in error.remedy


@pytest.mark.parametrize("at", [0, 49, 51, 3000, 5999])
def test_of_a_long_filter_the_place_is_shown(at: int) -> None:
    """The text around it, within a line of a terminal, with the caret below."""
    text = " and ".join(f"pid == {number}" for number in range(1000, 1500))
    text = f"{text[:at]}${text[at:]}"
    with pytest.raises(UsageError) as caught:
        parse(text)
    _, line, caret = caught.value.answer.split("\n")
    assert len(line) <= 104
    assert line.strip().strip("…") in text
    shown = line[caret.index("^") :].rstrip("…")
    assert "$" in shown.split(" ")[0]
    assert text.index(shown) <= at


NAMES = sorted(operation_names())
TEXTS = st.text(max_size=12) | st.sampled_from(["and", "or", "a b", "'", "\\", "/a/**", "[!x]", "a,b", "x=y", "~"])


@st.composite
def comparisons(draw: st.DrawFn) -> Comparison:
    """Any comparison there can be."""
    field = draw(st.sampled_from(sorted(FIELDS)))
    kind = FIELDS[field]
    operator = draw(st.sampled_from(OPERATORS[kind]))
    value: st.SearchStrategy[int | str] = {
        Kind.NUMBER: st.integers(0, 2**32 - 1),
        Kind.SIZE: st.integers(0, 2**63 - 1) | st.integers(0, 100).map(lambda n: n << 20),
        Kind.DURATION: st.integers(0, 2**53 - 1) | st.integers(0, 100).map(lambda n: n * 10**6),
        Kind.TEXT: TEXTS,
        Kind.PATH: TEXTS,
        Kind.OPERATION: st.sampled_from(NAMES),
        Kind.RECORD: st.sampled_from(["call", "request", "ring"]),
        Kind.OPCODE: st.sampled_from(sorted(opcode_numbers())),
        Kind.WAY: st.sampled_from(PATHS),
    }[kind]
    most = 1 if operator[0] in "<>" else 3
    return Comparison(field, operator, tuple(draw(st.lists(value, min_size=1, max_size=most, unique=True))))


@given(st.lists(comparisons(), max_size=4, unique=True))
def test_the_text_of_a_filter_says_all(chosen: list[Comparison]) -> None:
    """The text is read as the same filter, unless a pattern is none."""
    written = Filter(tuple(chosen))
    patterns = [value for one in chosen if one.operator.endswith("~") for value in map(str, one.values)]
    backwards = any(second < first for text in patterns for first, second in re.findall(r"(?=(.)-(.))", text))
    if backwards and "[" in "".join(patterns):
        return  # may be refused
    assert parse(str(written)) == written


SIGNS = st.lists(
    st.sampled_from(
        [*FIELDS, "==", "!=", "~", "<", ">=", "and", "&&", "or", ",", "\n", "'", '"', "(", "1", "4KiB", "1ms"]
    )
    | st.text(max_size=3),
    max_size=12,
)


@given(st.text() | SIGNS.map(" ".join) | SIGNS.map("".join))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing else happens, and a filter's text is read again as the same filter."""
    try:
        chosen = parse(text)
    except UsageError as error:
        shown = error.answer.split("\n"), error.remedy
    else:
        assert parse(str(chosen)) == chosen
        return
    assert len(shown[0]) == 3
    assert shown[1]


@pytest.mark.parametrize(
    ("glob", "yes", "no"),
    [
        ("/data/**", ["/data", "/data/", "/data/a", "/data/a/b"], ["/database", "/x/data/a"]),
        ("/data/*", ["/data/a", "/data/"], ["/data/a/b", "/data"]),
        ("/a/**/z", ["/a/z", "/a/b/z", "/a/b/c/z"], ["/az", "/a/bz"]),
        ("**/log", ["/var/log", "x/log"], ["log2", "/log/x"]),
        ("/a?c", ["/abc"], ["/a/c", "/ac"]),
        ("/[ab]*.[!o]", ["/a1.c", "/b.x"], ["/c.c", "/a.o"]),
        ("/a[", ["/a["], ["/a"]),
        ("/[]x]", ["/]", "/x"], ["/y"]),
        ("/a[*]", ["/a*"], ["/ab"]),
        ("/[\\^&&||-]", ["/\\", "/^", "/&", "/-"], ["/b"]),
        ("/a\nb", ["/a\nb"], ["/a"]),
    ],
)
def test_patterns_of_paths(glob: str, yes: list[str], no: list[str]) -> None:
    """Slashes stop stars, but not two of them."""
    pattern = compile_glob(glob, slashes=True)
    assert [text for text in yes if not pattern.fullmatch(text)] == []
    assert [text for text in no if pattern.fullmatch(text)] == []


@given(st.text("ab*?[]!-/.", max_size=8), st.text("ab*?[]!-/.", max_size=8))
def test_patterns_of_names_are_those_of_the_shell(glob: str, text: str) -> None:
    """Like those of Python's fnmatch."""
    try:
        pattern = compile_glob(glob, slashes=False)
    except ValueError:
        return
    assert bool(pattern.fullmatch(text)) == fnmatch.fnmatchcase(text, glob)


@given(st.text(max_size=10), st.text(max_size=10))
def test_an_escaped_text_fits_itself_alone(text: str, other: str) -> None:
    """Whatever signs it holds."""
    pattern = compile_glob(escape_glob(text), slashes=True)
    assert pattern.fullmatch(text)
    assert bool(pattern.fullmatch(other)) == (text == other)


def test_a_cgroup_and_those_below() -> None:
    """The meaning of ``--cgroup``, for every name; the root is the parent of all."""
    own = below_cgroup("/a/b[1]/")
    assert [path for path in ("/a/b[1]", "/a/b[1]/c", "/a/b1", "/a/b[1]x", "/a") if own.accepts(path)] == [
        "/a/b[1]",
        "/a/b[1]/c",
    ]
    assert all(below_cgroup("/").accepts(path) for path in ("/", "/a", "/a/b"))


def test_operations_by_class_group_and_call() -> None:
    """Classes are wider than the calls of the same name."""
    read = parse("operation == read").operations()
    assert {"read", "pread64", "readv", "copy_file_range"} <= read.calls
    assert not {"write", "openat", "readlink"} & read.calls
    assert read.requests == {RequestOp.READ}
    assert parse("operation == sys_read").operations().calls == {"read"}
    assert parse("operation == pread64").operations() == parse("operation ~ pread64").operations()
    assert parse("operation == fstat").operations().calls == {"newfstat"}
    assert {"newfstat", "unlink"} <= parse("operation == metadata").operations().calls
    assert parse("operation == flush").operations().requests == {RequestOp.FLUSH}
    assert {"fsync", "msync"} <= parse("operation == flush").operations().calls
    assert parse("operation == discard").operations().calls == frozenset()


def test_operations_of_several_comparisons() -> None:
    """All must hold; negation takes away; ``kind`` is one of them."""
    chosen = parse("operation == read, discard and operation != pread64 and kind == call").operations()
    assert "read" in chosen.calls
    assert "pread64" not in chosen.calls
    assert chosen.requests == frozenset()
    everything = parse("pid == 1").operations()
    assert everything.requests == frozenset(RequestOp)
    assert parse("kind != call").operations().calls == frozenset()
    assert (
        parse("operation != write").operations().calls
        == everything.calls - parse("operation == write").operations().calls
    )
