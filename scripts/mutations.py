"""The changes that ``scripts/mutate.py`` tries: of Python by its syntax tree, of C by patterns.

Operators, comparisons, numbers, conditions and returned values become others; operands and statements go. Texts,
annotations, decorators and assertions are not changed.
"""

from __future__ import annotations

import ast
import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_PAIRS = {"<": "<=", ">": ">=", "==": "!=", "+": "-", "<<": ">>", "&": "|", "+=": "-=", "|=": "&="}
_SWAPPED = _PAIRS | {new: old for old, new in _PAIRS.items()}
_PYTHON_PAIRS = {"and": "or", "is": "is not", "in": "not in", "*": "//"}
_PYTHON_SWAPPED = _SWAPPED | _PYTHON_PAIRS | {new: old for old, new in _PYTHON_PAIRS.items()} | {"%": "*", "/": "*"}
_PYTHON_OPERATOR = re.compile(rb"is not\b|not in\b|is\b|in\b|and\b|or\b|<<|>>|[-+|&]=|[=!<>]=|//|[-+*/%<>&|]")
_C_PAIRS = {"*": "/", "&&": "||", "true": "false", "++": "--", "break;": "continue;"}
_C_SWAPPED = _SWAPPED | _C_PAIRS | {new: old for old, new in _C_PAIRS.items()}
_C_HIDDEN = re.compile(
    rb"/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'|^[ \t]*#(?:\\\n|[^\n])*", re.DOTALL | re.MULTILINE
)
"""Comments, texts, and lines of the preprocessor."""
_C_TERM = rb"!?[\w.\[\]]+(?:->[\w.\[\]]+)*"
_C_OPERAND = _C_TERM + rb"(?: (?:[=!<>]=|[<>]) " + _C_TERM + rb")?"
_C_OPERATOR = rb"(?<= )(?:<<|>>|&&|\|\||[-+|&]=|[=!<>]=|[-+*/<>&|])(?= )|\+\+|--|\b(?:true|false)\b"
_C_RULES: tuple[tuple[bytes, Callable[[re.Match[bytes]], bytes]], ...] = (
    (_C_OPERATOR + rb"|\b(?:break|continue);", lambda match: _C_SWAPPED[match[0].decode()].encode()),
    (rb"(?<![\w.])\d+(?![\w.])", lambda match: str(int(match[0], 8 if match[0].startswith(b"0") else 10) + 1).encode()),
    (rb"(?<=\breturn )[^;0][^;]*(?=;)", lambda _: b"0"),
    (rb"!(?=[\w(])", lambda _: b""),
    (rb"(?<=[( ])" + _C_OPERAND + rb" (?:&&|\|\|) ", lambda _: b""),
    (rb" (?:&&|\|\|) " + _C_OPERAND + rb"(?=[);])", lambda _: b""),
    (rb"(?<=\n)( +)" + _C_TERM + rb"(?: [-+|&]?= [^;{}]+|\([^;{}]*\))(?=;)", lambda match: match[1]),
)
"""What is found in the code, and what stands there instead."""


class Change(NamedTuple):
    """Bytes of a file, from ``start`` to ``end``, and what stands there instead."""

    start: int
    end: int
    new: bytes


@dataclass(frozen=True)
class Mutant:
    """A change of one file."""

    path: Path
    change: Change

    def apply(self, text: bytes) -> bytes:
        """The changed file."""
        return text[: self.change.start] + self.change.new + text[self.change.end :]

    def shown(self, text: bytes) -> str:
        """``lo2io/units.py:12: old line → new line``."""
        begin = text.rfind(b"\n", 0, self.change.start) + 1
        number = text.count(b"\n", 0, begin) + 1
        end = text.find(b"\n", self.change.end)
        new = self.apply(text)[begin : end + len(self.change.new) - (self.change.end - self.change.start)]
        lines = (" ".join(line.decode().split()) for line in (text[begin:end], new))
        return f"{self.path}:{number}: " + "  →  ".join(lines)

    def key(self, text: bytes) -> tuple[str, str]:
        """The file, and the line as it was and is: what stays if other lines change."""
        return str(self.path), self.shown(text).split(": ", 1)[1]


def possible(path: Path, text: bytes) -> set[Change]:
    """The changes of a file. Some of them leave it no program."""
    changes = _c_changes(text) if path.suffix == ".c" else _PythonChanges(text).found
    return {change for change in changes if change.new != text[change.start : change.end]}


def _c_changes(text: bytes) -> Iterator[Change]:
    code = _C_HIDDEN.sub(lambda match: re.sub(rb"[^\n]", b" ", match[0]), text)
    for pattern, replace in _C_RULES:
        for match in re.finditer(pattern, code):
            yield Change(match.start(), match.end(), replace(match))


class _PythonChanges(ast.NodeVisitor):
    """Changes of a module. Python 3.11 does not know the places inside of f-strings, which are left out."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.found: list[Change] = []
        self._lines = [0, *(match.end() for match in re.finditer(rb"\n", text))]
        self.visit(ast.parse(text))

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        return self._lines[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0)

    def _replace(self, node: ast.expr | ast.stmt, new: str) -> None:
        self.found.append(Change(self._start(node), self._end(node), new.encode()))

    def _swap(self, left: ast.expr, right: ast.expr) -> None:
        """Another operator between two operands."""
        match = _PYTHON_OPERATOR.search(self.text, self._end(left), self._start(right))
        new = match and _PYTHON_SWAPPED.get(match[0].decode())
        if match and new:
            self.found.append(Change(match.start(), match.end(), new.encode()))

    def _skip(self, node: ast.AST) -> None:
        """Nothing below is changed."""

    visit_JoinedStr = visit_Assert = visit_arg = _skip  # noqa: N815 - the names of ast

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for part in (node.args, *node.body):
            self.visit(part)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in node.body:
            self.visit(part)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, int):
            self._replace(node, str(not node.value if isinstance(node.value, bool) else node.value + 1))

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":  # zip() then asserts that lengths are equal
            self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self.found.append(Change(self._start(node), self._start(node.operand), b""))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self._swap(node.left, node.right)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._swap(node.target, node.value)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, right in itertools.pairwise((node.left, *node.comparators)):
            self._swap(left, right)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in itertools.pairwise(node.values):
            self._swap(left, right)
            self.found.append(Change(self._start(left), self._start(right), b""))
        self.found.append(Change(self._end(node.values[-2]), self._end(node.values[-1]), b""))
        self.generic_visit(node)

    def _visit_condition(self, node: ast.If | ast.While | ast.IfExp) -> None:
        test = node.test
        if isinstance(test, ast.Name) and test.id == "TYPE_CHECKING":
            return
        if not isinstance(test, ast.UnaryOp):
            self._replace(test, f"(not ({self.text[self._start(test) : self._end(test)].decode()}))")
        self.generic_visit(node)

    visit_If = visit_While = visit_IfExp = _visit_condition  # noqa: N815

    def visit_Return(self, node: ast.Return) -> None:
        if node.value and not isinstance(node.value, ast.Constant):
            self._replace(node.value, "None")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._replace(node, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._replace(node, "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(node, "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, "break")
