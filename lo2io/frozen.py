"""Classes as by ``dataclasses.dataclass(slots=True)``, but made faster. Most are frozen: their objects never change.

The standard decorator writes and compiles six methods for each class. A recording makes some 60 such classes before its
command runs, and 140 until its summary is printed, and the user waits for that. This decorator compiles ``__init__``
alone, and only for a class of which many objects are made. A closure stands in for it until then, and for all other
methods. The decorator also keeps annotations from the standard library, which searches each of them for ``ClassVar``:
no class of lo2io has one.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from dataclasses import dataclass

__all__ = ["dataclass"]
_FEW = 8
"""Compiling ``__init__`` takes as long as making some 20 objects without."""


def _make_init(cls: type, fields: Sequence[dataclasses.Field[Any]]) -> Callable[..., None]:
    """``__init__``: it puts each value into its slot."""
    known: dict[str, Any] = {"MISSING": dataclasses.MISSING}
    parameters: dict[bool, list[str]] = {False: ["self"], True: []}
    lines = []
    for field in fields:
        name, value, default = field.name, field.name, ""
        known[f"set_{name}"] = getattr(cls, name).__set__
        if field.default is not dataclasses.MISSING:
            known[f"default_{name}"] = field.default
            default = f" = default_{name}"
        elif field.default_factory is not dataclasses.MISSING:
            known[f"make_{name}"] = field.default_factory
            default, value = " = MISSING", f"make_{name}() if {name} is MISSING else {name}"
        parameters[bool(field.kw_only)].append(f"{name}{default}")
        lines.append(f"    set_{name}(self, {value})")
    by_name = ["*", *parameters[True]] if parameters[True] else []
    text = "\n".join([f"def __init__({', '.join(parameters[False] + by_name)}):", *lines])
    exec(text, known)  # noqa: S102 - as the standard library does
    return known["__init__"]  # type: ignore[no-any-return]


def _make_init_later(cls: Any, fields: Sequence[dataclasses.Field[Any]]) -> Callable[..., None]:
    """An ``__init__`` that puts a compiled one in its own place after a few objects, or if the arguments do not fit."""
    slots = [(field, getattr(cls, field.name).__set__) for field in fields]
    names = {field.name for field in fields}
    in_order = [field.name for field in fields if not field.kw_only]
    made = 0

    def init(self: object, *values: object, **named: object) -> None:
        nonlocal made
        made += 1
        given = dict(zip(in_order, values, strict=False)) | named
        if made > _FEW or len(given) < len(values) + len(named) or not given.keys() <= names:
            cls.__init__ = _make_init(cls, fields)
            cls.__init__(self, *values, **named)
            return
        for field, put in slots:
            put(self, given[field.name] if field.name in given else _default_of(cls, field))

    return init


def _default_of(cls: type, field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    raise TypeError(f"{cls.__name__}.__init__() missing a required argument: {field.name!r}")


def _refuse(self: object, name: str, *_: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot change field {name!r} of {type(self).__qualname__}")


def _show(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _finish(cls: Any, *, frozen: bool) -> None:
    """Give a class the methods that its objects need."""
    fields = dataclasses.fields(cls)
    compared = attrgetter(*(field.name for field in fields if field.compare))
    slots = [getattr(cls, field.name).__set__ for field in fields]

    def is_equal(self: object, other: object) -> bool:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    def count_hash(self: object) -> int:
        return hash(compared(self))

    def set_state(self: object, state: list[Any]) -> None:
        for put, value in zip(slots, state, strict=True):
            put(self, value)

    cls.__init__ = _make_init_later(cls, fields)
    cls.__eq__, cls.__hash__ = is_equal, count_hash if frozen else None
    if frozen:
        cls.__setattr__ = cls.__delattr__ = _refuse
    cls.__getstate__, cls.__setstate__ = _get_state, set_state
    if "__repr__" not in cls.__dict__:
        cls.__repr__ = _show


if not TYPE_CHECKING:  # for mypy, this is the standard library's decorator

    def dataclass(*, frozen: bool = False, slots: bool = True, kw_only: bool = False) -> Callable[[type], type]:
        """As the standard library's, for classes with slots. Their fields have nothing but defaults."""

        def make(cls: type) -> type:
            types = cls.__annotations__
            cls.__annotations__ = dict.fromkeys(types, object)
            made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
            made.__annotations__ = types
            for name, type_ in types.items():
                made.__dataclass_fields__[name].type = type_
            _finish(made, frozen=frozen)
            return made

        return make
