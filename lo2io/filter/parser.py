"""Parses a filter's text. An error shows the place in the text, and what may stand there."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, NoReturn

from lo2io.errors import UsageError
from lo2io.filter.globs import compile_glob
from lo2io.filter.language import (
    CLASSES,
    FIELDS,
    KEYWORDS,
    KINDS,
    LIKE,
    OPERATORS,
    ORDER,
    PATHS,
    UNLIKE,
    WORD,
    Comparison,
    Filter,
    Kind,
    opcode_numbers,
    operation_names,
)
from lo2io.frozen import dataclass
from lo2io.units import parse_bytes, parse_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MOST_NUMBER = 2**32
_MOST_SIZE = 2**63
_MOST_DURATION_NS = 2**53
"""The longest time, 104 days: units.py computes with floats, which are exact up to this."""


def parse(text: str) -> Filter:
    """Read a filter.

    Args:
        text: Comparisons, joined by ``and``, ``&&`` or the end of a line. Empty: a filter that lets everything pass.

    Raises:
        UsageError: The text is no filter. The answer shows the place, the remedy says what may stand there.
    """
    return _Parser(text).read()


def parse_all(texts: Iterable[str]) -> Filter:
    """Read several filters as one. All must hold, as when ``--filter`` is given several times.

    Raises:
        UsageError: As for :func:`parse`.
    """
    joined = Filter()
    for text in texts:
        joined &= parse(text)
    return joined


_SHOWN = 50
"""The number of characters that an error shows on each side of the place."""
_TOKEN = re.compile(
    rf"""(?P<string>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")|(?P<operator>==|!=|<=|>=|!~|<|>|~)|(?P<comma>,)"""
    rf"""|(?P<line>[\r\n]\s*)|(?P<blank>[^\S\r\n]+)|(?P<joint>&&)|(?P<word>{WORD})|(?P<other>.)""",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        kind, found = match.lastgroup or "other", match[0]
        if kind == "word" and found.lower() == "and":
            kind = "joint"
        if kind != "blank":
            yield _Token(kind, found, match.start())


class _Parser:
    """A recursive descent parser. Every error names its place."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [*_tokens(text), _Token("end", "", len(text.rstrip()))]
        self._next = 0

    def read(self) -> Filter:
        comparisons: list[Comparison] = []
        self._skip_lines()
        while self._peek().kind != "end":
            comparisons.append(self._comparison())
            token = self._peek()
            lines = self._skip_lines()
            if self._peek().kind == "joint":
                self._take()
                self._skip_lines()
                if self._peek().kind == "end":
                    self._fail(self._peek(), "the filter ends where a comparison should follow", _a_field())
            elif not lines and token.kind != "end":
                self._unjoined(token)
        return Filter(tuple(dict.fromkeys(comparisons)))

    def _comparison(self) -> Comparison:
        field = self._take()
        if field.kind in {"other", "string", "comma"} or field.text.lower() in KEYWORDS:
            self._unjoined(field)
        if field.text not in FIELDS:
            near = _near(field.text, FIELDS)
            self._fail(field, f"{_shown(field.text)} is no field", near + _a_field())
        kind = FIELDS[field.text]
        operators = OPERATORS[kind]
        operator = self._take()
        if operator.kind == "other":
            self._unjoined(operator)
        if operator.kind != "operator":
            answer = "the comparison is not complete" if operator.kind == "end" else "this is no operator"
            self._fail(operator, answer, f"after {field.text} stands {_any_of(operators)}")
        if operator.text not in operators:
            problem = f"{field.text} cannot be compared by {operator.text}"
            self._fail(operator, problem, f"{field.text} takes {_any_of(operators)}")
        values = [self._value(field.text, operator.text)]
        while self._peek().kind == "comma":
            comma = self._take()
            if operator.text in ORDER:
                self._fail(comma, f"{operator.text} takes one value", "write == for any of several")
            self._skip_lines()
            values.append(self._value(field.text, operator.text))
        return Comparison(field.text, operator.text, tuple(dict.fromkeys(values)))

    def _value(self, field: str, operator: str) -> int | str:
        token = self._take()
        kind = FIELDS[field]
        if token.kind in {"word", "joint"} and token.text.lower() not in KEYWORDS:
            text = token.text
        elif token.kind == "string":
            text = re.sub(r"\\(.)", r"\1", token.text[1:-1], flags=re.DOTALL)
        else:
            if token.kind == "other":
                self._unjoined(token)
            answer = "a value is missing" if token.kind in {"end", "line", "joint", "comma"} else "this is no value"
            self._fail(token, answer, f"{field} is compared with {kind.value}{_quoting(token)}")
        if kind in {Kind.NUMBER, Kind.SIZE, Kind.DURATION}:
            return self._number(token, kind, text)
        if kind is Kind.OPCODE:
            text = text.upper()
        if operator in {LIKE, UNLIKE}:
            self._check_glob(token, text, slashes=kind is Kind.PATH)
        if (names := _names(kind)) is not None:
            self._check_name(token, Comparison(field, operator, (text,)), names)
        return text

    def _number(self, token: _Token, kind: Kind, text: str) -> int:
        digits, most = r"[0-9]{1,20}", _MOST_NUMBER
        form = digits
        if kind is Kind.SIZE:
            form, most = digits + r"\s*[kmgtKMGT]?(i?[bB])?", _MOST_SIZE
        elif kind is Kind.DURATION:
            form, most = digits + r"(\.[0-9]{1,9})?\s*(ns|us|µs|ms|s|min|h)", _MOST_DURATION_NS
        if not re.fullmatch(form, text):
            self._fail(token, f"{_shown(text)} is not {kind.value}", _number_form(kind))
        number = {Kind.SIZE: parse_bytes, Kind.DURATION: parse_duration}.get(kind, int)(text)
        if number >= most:
            self._fail(token, f"{_shown(text)} is too large", f"less than {most}")
        return number

    def _check_glob(self, token: _Token, text: str, *, slashes: bool) -> None:
        try:
            compile_glob(text, slashes=slashes)
        except ValueError as error:
            self._fail(token, f"{_shown(text)} is no pattern: {error}", "* ? and [a-z] have a meaning, [*] is a star")

    def _check_name(self, token: _Token, one: Comparison, names: Iterable[str]) -> None:
        if not any(map(one.accepts, names)):
            near = _near(str(one.values[0]), names)
            expected = f"one of {', '.join(CLASSES if one.field == 'operation' else names)}"
            more = ", a group or a call: `lo2io tracepoints list`" if one.field == "operation" else ""
            what = "no path of a ring's request" if one.field == "via" else f"no {one.field}"
            self._fail(token, f"{_shown(str(one.values[0]))} is {what}", near + expected + more)

    # ---- tokens ----

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._tokens[self._next]
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _skip_lines(self) -> bool:
        before = self._next
        while self._peek().kind == "line":
            self._take()
        return self._next > before

    # ---- refusals ----

    def _unjoined(self, token: _Token) -> NoReturn:
        text = token.text
        if text.lower() == "or" or text.startswith("|"):
            self._fail(token, "a filter has no 'or'", "several values mean any of them: device == vda, vdb")
        if text.lower() == "not":
            self._fail(token, "a filter has no 'not'", "write != or !~")
        if text in {"!", "=", "&"}:
            whole = {"!": "!= or !~", "=": "==", "&": "&& or `and`"}[text]
            self._fail(token, f"{text} alone means nothing", f"write {whole}; quote a value that has such signs")
        if text in {"(", ")"}:
            self._fail(
                token, "a filter has no parentheses", "all comparisons must hold; quote a value that has parentheses"
            )
        if text in {"'", '"'}:
            self._fail(token, "this quote is not closed", f"end the value with {text}")
        if token.kind == "comma":
            self._fail(token, "a comma stands between values", "comparisons are joined by `and`")
        self._fail(token, "this cannot stand here", "comparisons are joined by `and`, each is: field operator value")

    def _fail(self, token: _Token, problem: str, expected: str) -> NoReturn:
        at = min(token.at, len(self._text))
        begin = max(self._text.rfind(end, 0, at) for end in "\r\n") + 1
        line = re.split(r"[\r\n]", self._text[begin:], maxsplit=1)[0]
        shown, place = _clip("".join(letter if letter.isprintable() else " " for letter in line), at - begin)
        raise UsageError("read the filter", f"{problem}\n  {shown}\n  {' ' * place}^", expected)


def _clip(line: str, place: int) -> tuple[str, int]:
    """The part of a long line around a place, and the place in it."""
    cut = max(0, place - _SHOWN) if len(line) > 2 * _SHOWN else 0
    shown = line[cut : cut + 2 * _SHOWN]
    left, right = "…" * (cut > 0), "…" * (cut + len(shown) < len(line))
    return f"{left}{shown}{right}", place - cut + len(left)


def _names(kind: Kind) -> Iterable[str] | None:
    """All values that a field can have; None: any text."""
    if kind is Kind.OPERATION:
        return operation_names()
    if kind is Kind.OPCODE:
        return opcode_numbers()
    return {Kind.RECORD: KINDS, Kind.WAY: PATHS}.get(kind)


def _near(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    return f"did you mean {' or '.join(close)}? " if close else ""


def _a_field() -> str:
    return f"fields are {', '.join(FIELDS)}"


def _any_of(operators: tuple[str, ...]) -> str:
    return f"{', '.join(operators[:-1])} or {operators[-1]}"


def _number_form(kind: Kind) -> str:
    return "give it a unit: ns, us, ms, s, min or h" if kind is Kind.DURATION else f"write {kind.value}"


def _quoting(token: _Token) -> str:
    return "; quote values with signs of the language in them" if token.kind in {"other", "operator"} else ""


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")  # noqa: PLR2004 - a line of a terminal
