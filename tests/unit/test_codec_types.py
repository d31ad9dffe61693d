"""Arguments and results come back with the types that the annotations say."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import subprocess
import sys
import typing
from collections.abc import Awaitable
from decimal import Decimal
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, NamedTuple, NewType, Optional, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pydantic
import pytest

from holdfast.codec import Arguments, Returns
from holdfast.core.errors import InvalidJob

UTC = dt.UTC
ID = UUID("12345678-1234-5678-1234-567812345678")
T = typing.TypeVar("T")


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Mode(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: int


class Address(TypedDict):
    street: str
    since: dt.date


@dataclasses.dataclass
class Order:
    id: UUID
    price: Decimal
    files: list[Path]


@dataclasses.dataclass
class RushOrder(Order):
    minutes: int = 5


@dataclasses.dataclass
class Box(typing.Generic[T]):
    inside: T


@dataclasses.dataclass
class Parcel:
    content: Any


class Cat(msgspec.Struct, tag=True):
    name: str


class Dog(msgspec.Struct, tag=True):
    name: str


@attrs.define
class Crate:
    weight: Decimal
    label: Path


class User(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    name: str
    born: dt.date = pydantic.Field(alias="bornOn")


class Admin(User):
    level: int = 1


class Slug(str):
    __slots__ = ()


UserId = NewType("UserId", int)
Positive = Annotated[int, msgspec.Meta(gt=0)]


def annotated(annotation: Any) -> Arguments:
    def task(value): ...

    task.__annotations__ = {"value": annotation}
    return Arguments(task)


def sent(value: object, annotation: Any) -> Any:
    """What the function gets when the caller passes `value`."""
    arguments = annotated(annotation)
    args, kwargs = arguments.decode(arguments.encode((value,), {}))
    assert args == ()
    return kwargs["value"]


KEPT = [
    (None, None),
    (7, int),
    (2**80, int),
    (-(2**63) - 1, int),
    (1.5, float),
    (True, bool),
    ("text ☃ 😀", str),
    (dt.datetime(2026, 1, 2, 3, 4, 5, 678, UTC), dt.datetime),
    (dt.datetime(2026, 1, 2, 3, 4), dt.datetime),  # noqa: DTZ001 - a naive one stays naive
    (dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")), dt.datetime),
    (dt.date(2026, 1, 2), dt.date),
    (dt.time(3, 4, 5), dt.time),
    (dt.timedelta(days=-1, microseconds=3), dt.timedelta),
    (ID, UUID),
    (Decimal("1.10"), Decimal),
    (b"\x00\xff", bytes),
    (bytearray(b"\x00"), bytearray),
    (Path("a/b"), Path),
    (Path("a/b"), Path | None),
    (None, Path | None),
    (Color.RED, Color),
    (Level.LOW, Level),
    (Mode.READ | Mode.WRITE, Mode),
    ({1, 2}, set[int]),
    (frozenset({ID}), frozenset[UUID]),
    ((1, "a", ID), tuple[int, str, UUID]),
    ((ID, ID), tuple[UUID, ...]),
    (Point(1, 2), Point),
    ({"street": "x", "since": dt.date(2026, 1, 2)}, Address),
    (Order(ID, Decimal("9.90"), [Path("x")]), Order),
    (Box(ID), Box[UUID]),
    (Cat("Tom"), Cat),
    (Dog("Rex"), Cat | Dog),
    (Crate(Decimal("1.5"), Path("x")), Crate),
    (User(name="Ada", bornOn=dt.date(1815, 12, 10)), User),
    ([User(name="Ada", bornOn=dt.date(1815, 12, 10))], list[User]),
    ("b", Literal["a", "b"]),
    (3, UserId),
    (3, Positive),
    ([Path("x")], list[Path]),
    ({"k": ID}, dict[str, UUID]),
    ({ID: Decimal(1)}, dict[UUID, Decimal]),
    ({1: {"a"}}, dict[int, set[str]]),
    ([{"a": [dt.date(2026, 1, 2)]}], list[dict[str, list[dt.date]]]),
    (None, Optional[dt.date]),  # noqa: UP045 - the old spelling is a type of its own
    ([1], int | list[int] | None),
    ({"any": [1, None, "x"]}, dict[str, Any]),
    (collections.OrderedDict(b=1, a=2), collections.OrderedDict),
    (collections.Counter("aab"), collections.Counter[str]),
    (Slug("a-b"), Slug),
]


@pytest.mark.parametrize(("value", "annotation"), KEPT, ids=[f"{value!r}" for value, _ in KEPT])
def test_an_argument_comes_back_as_its_annotation_says(value, annotation):
    back = sent(value, annotation)
    assert type(back) is type(value)
    if not (isinstance(value, dt.datetime) and isinstance(value.tzinfo, ZoneInfo)):
        assert back == value
    else:
        assert back.astimezone(UTC) == value.astimezone(UTC)


@pytest.mark.parametrize(
    ("value", "annotation", "becomes"),
    [
        (1, float, 1.0),
        ((1, 2), list[int], [1, 2]),
        ([1, 2], tuple[int, ...], (1, 2)),
        ([1, 2, 2], set[int], {1, 2}),
        ({"a"}, typing.Iterable[str], ["a"]),
        ("2026-01-02", dt.date, dt.date(2026, 1, 2)),
        ("red", Color, Color.RED),
        ("x", Path, Path("x")),
        ({"name": "Tom", "type": "Cat"}, Cat, Cat("Tom")),
        (Slug("x"), str, "x"),
        (Path("x"), PurePath, PurePath("x")),
    ],
)
def test_an_argument_of_the_same_shape_becomes_what_the_annotation_says(value, annotation, becomes):
    assert sent(value, annotation) == becomes


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        ("1", int),
        (1.5, int),
        (True, int),
        (None, int),
        (1, str),
        (ID, str),
        (b"x", str),
        (Path("x"), str),
        (dt.date(2026, 1, 2), str),
        (Decimal("1.5"), float),
        ("yesterday", dt.datetime),
        ("blue", Color),
        (Color.RED, str),
        (Order(ID, Decimal(1), []), dict),
        (Order("no id", Decimal(1), []), Order),  # type: ignore[arg-type]
        (RushOrder(ID, Decimal(1), []), Order),
        ([RushOrder(ID, Decimal(1), [])], list[Order]),
        (Admin(name="Ada", bornOn=dt.date(1815, 12, 10)), User),
        ({"name": "Ada"}, User),
        (0, Positive),
        ({1: 2}, dict[str, int]),
        ({1: 2}, dict),
        ({"when": dt.date(2026, 1, 2)}, dict[str, Any]),
        ([dt.date(2026, 1, 2)], list),
        (Parcel(dt.date(2026, 1, 2)), Parcel),
        (10**400, float),
        ("x", typing.Callable),
    ],
)
def test_an_argument_that_contradicts_its_annotation_is_refused(value, annotation):
    with pytest.raises(InvalidJob, match=r"parameter 'value' of task\(\)"):
        sent(value, annotation)


def test_a_local_time_whose_offset_has_seconds_is_refused_as_json_would_move_it():
    old = dt.datetime(1850, 1, 1, tzinfo=ZoneInfo("Africa/Monrovia"))
    with pytest.raises(InvalidJob, match="a different time"):
        sent(old, dt.datetime)


CHANGED = [
    dt.datetime(2026, 1, 2, tzinfo=UTC),
    dt.timedelta(1),
    {1, 2},
    ID,
    Decimal("1.1"),
    b"x",
    Path("x"),
    Order(ID, Decimal(1), []),
    Cat("Tom"),
    Crate(Decimal(1), Path("x")),
    User(name="Ada", bornOn=dt.date(1815, 12, 10)),
    Color.RED,
    Level.LOW,
    Point(1, 2),
    {1: "one"},
    {Color.RED: 1},
    [{"deep": [ID]}],
]


@pytest.mark.parametrize("value", CHANGED, ids=repr)
def test_without_an_annotation_what_json_would_change_is_refused(value):
    def save(thing): ...

    with pytest.raises(InvalidJob, match="annotate parameter 'thing'"):
        Arguments(save).encode((value,), {})


@pytest.mark.parametrize("annotation", [Any, object])
def test_any_and_object_are_as_good_as_no_annotation(annotation):
    assert sent([1, {"a": None}], annotation) == [1, {"a": None}]
    with pytest.raises(InvalidJob, match="annotate parameter 'value'"):
        sent(ID, annotation)


def test_without_an_annotation_json_values_pass():
    value = {"a": [1, 2.5, None, True, "x"], "c": collections.OrderedDict(z=1)}
    assert sent(value, Any) == value


@pytest.mark.parametrize("value", [(), (1, 2), [1, (2,)], {"a": (1,)}])
def test_without_an_annotation_a_tuple_is_refused(value):
    with pytest.raises(InvalidJob, match=r"JSON would turn the tuple.* into list; annotate parameter 'value'"):
        sent(value, Any)


def test_extra_positional_arguments_without_annotation_pass_unless_they_are_tuples():
    def task(*rest): ...

    arguments = Arguments(task)
    assert arguments.decode(arguments.encode((1, [2]), {})) == ((1, [2]), {})
    with pytest.raises(InvalidJob, match=r"the tuple at \[1\] into list"):
        arguments.encode((1, (2,)), {})


def test_the_refusal_says_where_inside_the_argument():
    with pytest.raises(InvalidJob, match=r"the date at rows\[1\]\.day into str"):
        sent({"rows": [{}, {"day": dt.date(2026, 1, 2)}]}, Any)


@pytest.mark.parametrize(
    "annotation",
    [
        str | Path,
        dt.datetime | str,
        list[int] | set[int],
        typing.LiteralString,
        typing.SupportsAbs,
        type("Duck", (typing.Protocol,), {}),
        "NoSuchName",
        "list[NoSuchName]",
        "1 / 0",
        3,
    ],
    ids=str,
)
def test_an_annotation_that_json_cannot_keep_leaves_that_parameter_untyped(annotation):
    def task(value, day: dt.date): ...

    task.__annotations__["value"] = annotation
    arguments = Arguments(task)
    plain: Any = 3 if annotation is typing.SupportsAbs else "x"
    day = dt.date(2026, 1, 2)
    assert arguments.decode(arguments.encode((plain, day), {})) == ((), {"value": plain, "day": day})
    with pytest.raises(InvalidJob, match="'value'"):
        arguments.encode((Path("x"), day), {})


def test_none_may_be_passed_where_it_is_the_default():
    def task(count: int = None): ...  # type: ignore[assignment]  # noqa: RUF013 - often written so

    assert Arguments(task).encode((None,), {}) == b'{"count":null}'


def test_annotations_may_name_what_is_local_to_the_enclosing_function():
    @dataclasses.dataclass
    class Local:
        n: int

    def task(one: Local, many: list[Local]) -> Local: ...

    arguments = Arguments(task)
    assert arguments.decode(arguments.encode((Local(1), [Local(2)]), {})) == ((), {"one": Local(1), "many": [Local(2)]})
    assert Returns(task).decode(b'{"n":3}') == Local(3)


def uses_a_later_name(value: Later) -> Later: ...


LATER_ARGUMENTS, LATER_RETURNS = Arguments(uses_a_later_name), Returns(uses_a_later_name)


@dataclasses.dataclass
class Later:
    n: int


def test_annotations_may_name_what_is_defined_after_the_function():
    assert LATER_ARGUMENTS.decode(LATER_ARGUMENTS.encode((Later(1),), {})) == ((), {"value": Later(1)})
    assert LATER_RETURNS.decode(b'{"n":1}') == Later(1)


def test_the_same_set_always_gives_the_same_bytes():
    names = {f"name{i}" for i in range(10)}
    assert annotated(set[str]).encode((names,), {}) == msgspec.json.encode({"value": sorted(names)})


def test_a_set_does_not_disturb_the_order_of_a_dict_beside_it():
    def task(names: set[str], columns: dict[str, int]): ...

    assert Arguments(task).encode(({"b", "a"}, {"z": 1, "y": 2}), {}) == b'{"names":["a","b"],"columns":{"z":1,"y":2}}'


def test_a_result_comes_back_as_the_return_annotation_says():
    async def task() -> dict[UUID, Path]: ...

    returns = Returns(task)
    assert returns.decode(returns.encode({ID: Path("x")})) == {ID: Path("x")}


def test_a_result_is_typed_by_what_an_awaitable_gives():
    def task() -> Awaitable[dt.date]: ...

    assert Returns(task).decode(b'"2026-01-02"') == dt.date(2026, 1, 2)


def test_a_result_without_a_type_to_come_back_to_is_still_kept():
    def task(): ...

    def none() -> None: ...

    assert Returns(task).encode({"at": dt.date(2026, 1, 2)}) == b'{"at":"2026-01-02"}'
    assert Returns(none).decode(Returns(none).encode(3)) == 3
    assert Returns(max).decode(b"[1]") == [1]


def test_a_result_that_json_has_no_form_for_is_refused_by_the_name_of_the_task():
    def task() -> object: ...

    with pytest.raises(InvalidJob, match=r"the result of task\(\) cannot be encoded"):
        Returns(task).encode(object())
    with pytest.raises(InvalidJob, match=r"the result of task\(\) contains NaN or infinity at \[0\]"):
        Returns(task).encode([float("nan")])


def test_a_result_that_does_not_fit_says_so_when_it_is_read():
    def task() -> int: ...

    with pytest.raises(InvalidJob, match=r"the result of task\(\) is invalid: Expected `int`, got `str`"):
        Returns(task).decode(b'"x"')


def test_optional_packages_are_not_imported_with_the_codec():
    code = "import sys, holdfast.codec; print({'pydantic', 'cloudpickle', 'attrs'} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"
