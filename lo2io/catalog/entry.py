"""One entry of a file of ``tracepoints/``: returns its keys after a check, and refuses unknown keys."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from lo2io.errors import CatalogError

if TYPE_CHECKING:
    import enum
    from collections.abc import Iterable, Mapping

NAME = re.compile(r"[a-z_][a-z0-9_]*")
"""Names of calls, fields and operations, in the kernel's form."""

_EnumT = TypeVar("_EnumT", bound="enum.IntEnum")


class Table:
    """One entry. Each method takes a key out of it, and checks the key's value.

    Args:
        file: Name of the file, for messages.
        label: Name of the entry, for messages.
        content: The entry's keys and values from TOML.

    Raises:
        CatalogError: By every method: the key is missing or has a wrong value. The message names file, entry and key.
    """

    def __init__(self, file: str, label: str, content: dict[str, Any]) -> None:
        self.file, self.label, self.left = file, label, dict(content)

    def fail(self, key: str, what: str) -> NoReturn:
        """Refuse the entry for one of its keys."""
        raise CatalogError(f"{self.file}: {self.label}: {key}", what, "see docs/reference/tracepoint-files.md")

    def text(self, key: str, default: str | None = None, pattern: re.Pattern[str] | None = None) -> str:
        """A text that is not empty."""
        value = self.left.pop(key, default)
        if value is None:
            self.fail(key, "is missing")
        if not isinstance(value, str) or not value:
            self.fail(key, f"{value!r} is no text")
        if pattern and not pattern.fullmatch(value):
            self.fail(key, f"{value!r} does not fit {pattern.pattern}")
        return value

    def one_of(self, key: str, known: Iterable[str], default: str | None = None) -> str:
        """A text of a closed list."""
        value = self.text(key, default)
        if value not in known:
            self.fail(key, f"{value!r} is none of {', '.join(known)}")
        return value

    def member(self, key: str, kind: type[_EnumT], default: str | None = None) -> _EnumT:
        """The member of an enumeration that a text names in small letters."""
        value = self.text(key, default)
        name = value.upper()
        if name not in kind.__members__ or value != name.lower():
            self.fail(key, f"{value!r} is none of {', '.join(member.name.lower() for member in kind)}")
        return kind[name]

    def number(self, key: str, stop: int) -> int:
        """A number from 0 to before ``stop``."""
        value = self.left.pop(key, None)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < stop:
            self.fail(key, f"{value!r} is no number below {stop}")
        return value

    def numbers(self, key: str, known: Iterable[str], stop: int) -> Mapping[str, int]:
        """A table from names of a closed list to numbers from 0 to before ``stop``; empty if the key is missing."""
        value = self.left.pop(key, {})
        if not isinstance(value, dict):
            self.fail(key, f"{value!r} is no table")
        for name, number in value.items():
            if name not in known:
                self.fail(key, f"{name!r} is none of {', '.join(known)}")
            if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < stop:
                self.fail(key, f"{name}: {number!r} is no number below {stop}")
        return MappingProxyType(value)

    def flag(self, key: str) -> bool:
        """True or false; false if the key is missing."""
        value = self.left.pop(key, False)
        if not isinstance(value, bool):
            self.fail(key, f"{value!r} is neither true nor false")
        return value

    def names(self, key: str, known: Iterable[str]) -> tuple[str, ...]:
        """A list of at least one text, each of a closed list."""
        value = self.left.pop(key, None)
        if not isinstance(value, list) or not value:
            self.fail(key, "is no list of names")
        for name in value:
            if name not in known:
                self.fail(key, f"{name!r} is none of {', '.join(known)}")
        return tuple(value)

    def roles(self, known: Iterable[str]) -> Mapping[str, str]:
        """Role → name of its field, for the roles that the entry has."""
        return MappingProxyType({role: self.text(role, None, NAME) for role in known if role in self.left})

    def role_names(self, known: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        """As :meth:`roles`, but a value may also be a list: the field's names in different kernels."""
        found = {}
        for role in known:
            if role in self.left:
                value = self.left.pop(role)
                names = value if isinstance(value, list) else [value]
                if not names or not all(isinstance(name, str) and NAME.fullmatch(name) for name in names):
                    self.fail(role, f"{value!r} is neither a field's name nor a list of such")
                found[role] = tuple(names)
        return found

    def done(self) -> None:
        """Check that every key was taken."""
        for key in self.left:
            self.fail(key, "this key is unknown")
