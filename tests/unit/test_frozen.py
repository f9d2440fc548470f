"""``lo2io.frozen`` makes the classes that ``dataclasses.dataclass(frozen=True, slots=True)`` makes."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, field
from typing import Any

import pytest

from lo2io.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """One class of each kind of field."""

    row: int
    column: int = 7
    names: list[str] = field(default_factory=list)
    hidden: str = field(default="h", repr=False)
    aside: int = field(default=0, compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Standard:
    """The same, by the standard library."""

    row: int
    column: int = 7
    names: list[str] = field(default_factory=list)
    hidden: str = field(default="h", repr=False)
    aside: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A class whose fields are given by name."""

    first: int = 1
    second: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Longer(Named):
    """A class that inherits fields."""

    third: tuple[int, ...] = ()


@dataclass(slots=True)
class Changing:
    """A class that is not frozen."""

    number: int
    names: list[str] = field(default_factory=list)


GIVEN = (((1,), {}), ((1, 2), {"aside": 3}), ((1,), {"names": ["a"], "hidden": "x"}))


@pytest.mark.parametrize(("values", "names"), GIVEN)
def test_objects_are_as_the_standard_librarys(values: tuple[int, ...], names: dict[str, Any]) -> None:
    """Fields, defaults, text, and the conversion to a dictionary are those of the standard library's class."""
    ours, theirs = Place(*values, **names), Standard(*values, **names)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert repr(ours).removeprefix("Place") == repr(theirs).removeprefix("Standard")
    assert not hasattr(ours, "__dict__")


def test_a_default_that_is_made_belongs_to_one_object() -> None:
    """Each object gets a list of its own."""
    assert Place(1).names is not Place(1).names


def test_equal_fields_make_equal_objects() -> None:
    """Equality and hash depend on the compared fields, and on the class."""
    assert Place(1) == Place(1, aside=9)
    assert Place(1) != Place(2)
    assert Place(1) != Standard(1)
    assert hash(Named(second=2)) == hash(Named(second=2)) != hash(Named(second=3))
    assert Named(second=2) != Longer(second=2)


def test_no_field_changes() -> None:
    """A field is neither set nor deleted. A name that is no field is refused, too."""
    place = Place(1)
    with pytest.raises(FrozenInstanceError, match="'row' of Place"):
        place.row = 2
    with pytest.raises(FrozenInstanceError):
        del place.row
    with pytest.raises(FrozenInstanceError):
        place.other = 1
    assert place == Place(1)


def test_fields_are_given_by_name_alone() -> None:
    """``kw_only`` refuses places, and lets a field without a default follow one that has a default."""
    assert (Longer(second=2, third=(3,)).first, Longer(second=2).third) == (1, ())
    with pytest.raises(TypeError):
        Named(1, 2)
    with pytest.raises(TypeError, match="second"):
        Longer()


@pytest.mark.parametrize("made", [Place(1, names=["a"]), Longer(second=2)])
def test_objects_are_copied(made: Any) -> None:
    """Copies, also those by a pickle, equal their original. So does one with a replaced field, but for that field."""
    assert copy.copy(made) == copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) == made  # noqa: S301
    name = dataclasses.fields(made)[0].name
    assert getattr(dataclasses.replace(made, **{name: 5}), name) == 5


def test_others_change() -> None:
    """Objects of a class that is not frozen change, are compared by their fields, and have no hash."""
    changing = Changing(1)
    changing.number = 2
    assert changing == Changing(2) == copy.copy(changing) == pickle.loads(pickle.dumps(changing))  # noqa: S301
    assert changing != Changing(1)
    assert repr(changing) == "Changing(number=2, names=[])"
    assert changing.names is not Changing(2).names
    assert Changing.__hash__ is None
    with pytest.raises(AttributeError):
        changing.other = 1


@pytest.mark.parametrize(("values", "named"), [((1, 2), {}), ((1,), {"x": 2}), ((), {"x": 1, "y": 2}), ((), {})])
def test_arguments_that_do_not_fit_are_refused_from_the_first_object_on(
    values: tuple[int, ...], named: dict[str, int]
) -> None:
    """Too many, one twice, one of another name, too few: as by the standard decorator."""

    @dataclass(frozen=True, slots=True)
    class Point:
        x: int

    with pytest.raises(TypeError):
        Point(*values, **named)
    assert Point(3).x == 3


def test_many_objects_have_a_compiled_constructor() -> None:
    """The first ones have a closure, which is slower to call."""

    @dataclass(frozen=True, slots=True)
    class Point:
        x: int

    first = Point.__init__
    assert [Point(x).x for x in range(20)] == list(range(20))
    assert Point.__init__ is not first
    assert Point.__init__.__closure__ is None
