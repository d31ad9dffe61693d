"""A call becomes an object of parameters by name, and the same call again."""

import datetime as dt
import functools
import math
from typing import Any

import msgspec
import pytest

from holdfast.codec import Arguments, Hole, Returns, encode_untyped
from holdfast.core.errors import ConfigError, InvalidJob

DAY = dt.date(2026, 1, 2)


class Context:
    """Stands for what a worker injects."""


def add(a: int, b: int) -> int:
    return a + b


def greet(name: str, *, greeting: str = "hello", times: int = 1): ...


def everything(a, /, b, *rest, c, d=4, **more):
    return a, b, rest, c, d, more


class Report:
    def __call__(self, day: dt.date): ...

    def method(self, day: "dt.date"): ...

    @classmethod
    def build(cls, day: dt.date): ...

    @staticmethod
    def still(day: dt.date): ...


def logged(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs)

    return wrapper


def carried(fn: Any, *args: Any, **kwargs: Any) -> Any:
    arguments = Arguments(fn)
    return arguments.decode(arguments.encode(args, kwargs))


def run(fn: Any, *args: Any, **kwargs: Any) -> Any:
    back, named = carried(fn, *args, **kwargs)
    return fn(*back, **named)


def test_arguments_travel_by_name():
    assert Arguments(add).encode((1, 2), {}) == b'{"a":1,"b":2}'
    assert Arguments(add).encode((1,), {"b": 2}) == b'{"a":1,"b":2}'
    assert run(add, 1, 2) == 3


def test_the_same_call_gives_the_same_payload_however_it_is_written():
    assert Arguments(add).encode((), {"b": 2, "a": 1}) == Arguments(add).encode((1, 2), {})
    first, second = ({"c": 1, "y": 2, "x": 3}, {"x": 3, "y": 2, "c": 1})
    assert Arguments(everything).encode((1, 2), first) == Arguments(everything).encode((1, 2), second)


def test_defaults_are_not_written():
    assert Arguments(greet).encode(("Ada",), {}) == b'{"name":"Ada"}'
    assert Arguments(greet).encode(("Ada",), {"times": 1}) == b'{"name":"Ada","times":1}'
    assert carried(greet, "Ada") == ((), {"name": "Ada"})


def test_every_kind_of_parameter_comes_back_in_its_place():
    payload = Arguments(everything).encode((1, 2, 3, 4), {"c": 5, "z": 6})
    assert payload == b'{"a":1,"b":2,"c":5,"*":[3,4],"z":6}'
    assert run(everything, 1, 2, 3, 4, c=5, z=6) == (1, 2, (3, 4), 5, 4, {"z": 6})
    assert run(everything, 1, b=2, c=5, d=7) == (1, 2, (), 5, 7, {})


def test_star_arguments_are_typed_by_their_annotations():
    def task(*days: dt.date, **more: dt.timedelta): ...

    assert carried(task, DAY, x=dt.timedelta(1)) == ((DAY,), {"x": dt.timedelta(1)})
    with pytest.raises(InvalidJob, match=r"parameter '\*days' of task\(\)"):
        carried(task, 3)
    with pytest.raises(InvalidJob, match=r"argument 'x' of task\(\)"):
        carried(task, x=3)


def test_star_arguments_without_annotation_are_refused_by_name():
    with pytest.raises(InvalidJob, match=r"annotate parameter '\*rest'"):
        carried(everything, 1, 2, DAY, c=1)
    with pytest.raises(InvalidJob, match=r"argument 'z' of everything\(\).*annotate parameter '\*\*more'"):
        carried(everything, 1, 2, c=1, z=DAY)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, r"add\(\) missing 2 required arguments: 'a' and 'b'"),
        ((1,), {}, r"add\(\) missing 1 required argument: 'b'"),
        ((1, 2, 3), {}, r"add\(\) takes 2 positional arguments but 3 were given"),
        ((1, 2), {"c": 3}, r"add\(\) got an unexpected keyword argument 'c'"),
        ((1, 2), {"a": 3}, r"add\(\) got multiple values for argument 'a'"),
        ((1, 2), {"*": [3]}, r"add\(\) got an unexpected keyword argument '\*'"),
    ],
)
def test_a_wrong_call_is_refused_in_the_words_of_python(args, kwargs, message):
    with pytest.raises(InvalidJob, match=message):
        Arguments(add).encode(args, kwargs)


def test_keyword_only_parameters_are_not_taken_by_position():
    with pytest.raises(InvalidJob, match=r"greet\(\) takes 1 positional argument but 3 were given"):
        Arguments(greet).encode(("Ada", "hi", 2), {})


def test_an_argument_named_star_would_clash_with_the_positionals():
    with pytest.raises(InvalidJob, match=r"cannot take an argument named '\*'"):
        Arguments(everything).encode((1, 2), {"c": 3, "*": 4})
    with pytest.raises(InvalidJob, match=r"cannot take an argument named '\*'"):
        encode_untyped((), {"*": 4})


def test_a_positional_only_name_cannot_be_used_twice():
    def task(a=1, /, **more): ...

    assert carried(task, 5, x=2) == ((5,), {"x": 2})
    with pytest.raises(InvalidJob, match="takes 'a' by position only"):
        Arguments(task).encode((), {"a": 3})


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (lambda day: day, ("x",)),
        (functools.partial(add, 1), (2,)),
        (Report(), (DAY,)),
        (Report().method, (DAY,)),
        (Report.build, (DAY,)),
        (Report.still, (DAY,)),
        (logged(Report.still), (DAY,)),
        (functools.lru_cache(Report.still), (DAY,)),
        (math.sqrt, (4,)),
        (print, (1, 2)),
        (max, (1, 2)),
        (int, ("3",)),
        (", ".join, (["x"],)),
    ],
)
def test_any_callable_carries_its_arguments(fn, args):
    back, named = carried(fn, *args)
    assert (*back, *named.values()) == args


def test_a_partial_keeps_what_it_was_given():
    assert run(functools.partial(add, 1), 2) == 3
    assert run(functools.partial(add, b=10), 2) == 12
    assert run(functools.partial(add, b=10), 2, b=3) == 5


def test_an_async_function_is_like_any_other():
    async def task(day: dt.date): ...

    assert carried(task, DAY) == ((), {"day": DAY})


def test_a_builtin_without_a_signature_takes_what_it_is_given():
    assert Arguments(max).encode((1, 2), {}) == b'{"*":[1,2]}'
    assert Arguments(dict).decode(b'{"a":1}') == ((), {"a": 1})
    with pytest.raises(InvalidJob, match=r"argument 1 of max\(\)"):
        Arguments(max).encode((DAY,), {})
    with pytest.raises(InvalidJob, match="payload of max"):
        Arguments(max).decode(b'{"*":1}')


def test_what_was_written_by_name_alone_is_bound_where_the_function_is_known():
    def task(first: int, day: dt.date, *rest: int, key: str = ""): ...

    arguments = Arguments(task)
    assert arguments.decode(encode_untyped((1, "2026-01-02"), {})) == ((), {"first": 1, "day": DAY})
    assert arguments.decode(encode_untyped((1,), {"day": "2026-01-02"})) == ((), {"first": 1, "day": DAY})
    late = arguments.decode(encode_untyped((1, "2026-01-02", 3), {"key": "k"}))
    assert late == ((1, DAY, 3), {"key": "k"})
    with pytest.raises(InvalidJob, match="multiple values for argument 'first'"):
        arguments.decode(encode_untyped((1,), {"first": 2}))


def test_writing_by_name_alone_refuses_what_json_would_change():
    assert encode_untyped((1, [2]), {"b": None, "a": "x"}) == b'{"*":[1,[2]],"a":"x","b":null}'
    assert encode_untyped((), {}) == b"{}"
    with pytest.raises(InvalidJob, match=r"argument 2 of mail\.send: JSON would turn the date into str"):
        encode_untyped((1, DAY), {}, task="mail.send")
    with pytest.raises(InvalidJob, match="argument 1 of the task: JSON would turn the tuple into list"):
        encode_untyped(((2,),), {})
    with pytest.raises(InvalidJob, match="argument 'day' of"):
        encode_untyped((), {"day": DAY})


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b'{"a":1}', r"add\(\) missing 1 required argument: 'b'"),
        (b'{"a":1,"b":2,"c":3}', r"add\(\) got an unexpected keyword argument 'c'"),
        (b'{"a":1,"b":"x"}', r"parameter 'b' of add\(\) is invalid: Expected `int`, got `str`"),
        (b'{"*":[1,2,3]}', r"add\(\) takes 2 positional arguments but 3 were given"),
        (b'{"*":[3],"a":1,"b":2}', r"add\(\) takes 2 positional arguments but 3 were given"),
        (b'{"*":7}', r"'\*' in the payload of add\(\) is invalid"),
        (b"[1,2]", r"the payload of add\(\) is invalid"),
        (b"nonsense", r"the payload of add\(\) is not usable JSON"),
        (b"[" * 100_000, r"the payload of add\(\) is invalid"),
        (b'{"a":' * 100_000, r"the payload of add\(\)"),
        (b"", r"the payload of add\(\) is not usable JSON"),
    ],
)
def test_a_payload_that_does_not_fit_the_function_is_refused(payload, message):
    with pytest.raises(InvalidJob, match=message):
        Arguments(add).decode(payload)


def test_a_gap_before_a_positional_only_argument_is_filled_with_its_default():
    def task(a=1, b=2, /, c=3): ...

    assert Arguments(task).decode(b'{"b":5}') == ((1, 5), {})
    assert Arguments(task).decode(b'{"c":5}') == ((), {"c": 5})


def test_the_context_is_found_by_its_annotation_and_never_travels():
    def task(context: Context, a: int): ...

    arguments = Arguments(task, context_type=Context)
    assert arguments.takes_context
    assert arguments.encode((1,), {}) == b'{"a":1}'
    assert arguments.decode(b'{"a":1}') == ((), {"a": 1})
    for wrong in ({"context": 1, "a": 2}, {"a": 2, "context": None}):
        with pytest.raises(InvalidJob, match=r"task\(\) gets 'context' from the worker"):
            arguments.encode((), wrong)
    with pytest.raises(InvalidJob, match=r"task\(\) gets 'context' from the worker"):
        arguments.decode(b'{"a":1,"context":2}')


def test_the_context_may_be_optional_or_named_by_a_string():
    def optional(context: Context | None = None, a=1): ...

    def unknown(context: "nowhere.Context", a): ...  # type: ignore[name-defined]  # noqa: F821

    assert Arguments(optional, context_type=Context).takes_context
    assert Arguments(unknown, context_type=Context).takes_context
    assert not Arguments(add, context_type=Context).takes_context


def test_a_context_that_is_not_the_first_parameter_is_refused_when_the_task_is_made():
    def second(a, context: Context): ...

    def by_name(*, context: Context): ...

    def after_star(*items, context: Context): ...

    def star(*contexts: Context): ...

    for fn in (second, by_name, after_star, star):
        with pytest.raises(ConfigError, match=rf"{fn.__name__}\(\): the context must be the first parameter"):
            Arguments(fn, context_type=Context)

    def twice(one: Context, two: Context): ...

    with pytest.raises(ConfigError, match="two context parameters"):
        Arguments(twice, context_type=Context)

    def before_star(context: Context, *items): ...

    assert Arguments(before_star, context_type=Context).encode((1,), {}) == b'{"*":[1]}'


def test_a_whole_payload_is_the_one_argument():
    def task(context: Context, body: dict[str, dt.date]): ...

    arguments = Arguments(task, whole=True, context_type=Context)
    assert arguments.encode(({"*": DAY},), {}) == b'{"*":"2026-01-02"}'
    assert arguments.encode((), {"body": {}}) == b"{}"
    assert arguments.decode(b'{"*":"2026-01-02"}') == ((), {"body": {"*": DAY}})


def test_a_whole_payload_may_go_to_a_positional_only_parameter():
    def task(body, /): ...

    assert Arguments(task, whole=True).decode(b'{"a":1}') == (({"a": 1},), {})


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (([1],), {}, "the payload of task"),
        ((3,), {}, "the payload of task"),
        ((), {}, "missing 1 required argument: 'body'"),
        ((), {"a": 1}, "unexpected keyword argument 'a'"),
        (({"day": DAY},), {}, "annotate parameter 'body'"),
        (({}, 2), {}, "one argument, 'body'"),
    ],
)
def test_a_whole_payload_must_be_one_object(args, kwargs, message):
    def task(body, other=None): ...

    with pytest.raises(InvalidJob, match=message):
        Arguments(task, whole=True).encode(args, kwargs)


def test_a_whole_payload_needs_a_function_with_one_parameter():
    for fn in (add, lambda: None, lambda *, a, b=1, c: None, max):
        with pytest.raises(ConfigError, match="one parameter for the whole payload"):
            Arguments(fn, whole=True)


def test_a_function_without_parameters_takes_an_empty_object():
    def work() -> None: ...

    arguments = Arguments(work)
    assert arguments.encode((), {}) == b"{}"
    assert arguments.decode(b"{}") == ((), {})


# -- functions that handle a batch


def test_a_call_of_a_batch_function_has_one_item_of_its_list():
    def work(items: list[int]) -> None: ...

    arguments = Arguments(work, batch=True)
    payload = arguments.encode((3,), {})
    assert payload == b'{"items":3}'
    assert arguments.decode(payload) == ((), {"items": 3})
    with pytest.raises(InvalidJob):
        arguments.encode(([3],), {})


def no_parameter() -> None: ...
def two_parameters(a: list[int], b: list[int]) -> None: ...
def optional(items: list[int] = []) -> None: ...  # noqa: B006
def positionals(items: list[int], *more: int) -> None: ...
def named(items: list[int], **more: int) -> None: ...


@pytest.mark.parametrize("function", [no_parameter, two_parameters, optional, positionals, named])
def test_a_batch_function_has_one_parameter_and_nothing_else(function):
    with pytest.raises(ConfigError, match="handles a batch"):
        Arguments(function, batch=True)


# -- annotations


def test_annotations_are_read_where_the_function_was_defined_though_no_module_has_its_name():
    names = {"__name__": "a_notebook", "Day": dt.date}
    exec("def work(day: 'Day') -> 'Day': ...", names)
    assert Arguments(names["work"]).decode(b'{"day":"2026-01-02"}') == ((), {"day": DAY})


def test_a_refusal_says_what_was_passed_and_what_would_arrive():
    class Base(msgspec.Struct):
        a: int

    class Sub(Base):
        b: int

    def work(it: Base) -> None: ...

    with pytest.raises(InvalidJob, match="turn the Sub into Base"):
        Arguments(work).encode((Sub(1, 2),), {})


def test_parameters_are_compiled_once_and_at_first_use(monkeypatch):
    compiled, compile_all = [], Arguments._compile
    monkeypatch.setattr(Arguments, "_compile", lambda self: compiled.append(self) or compile_all(self))
    arguments = Arguments(add)
    assert compiled == []
    for _ in range(2):
        arguments.decode(arguments.encode((1, 2), {}))
        arguments.encode_open((1, 2), {})
    assert compiled == [arguments]


def test_a_result_type_is_compiled_once(monkeypatch):
    compiled, compile_type = [], Returns._compile
    monkeypatch.setattr(Returns, "_compile", lambda self: compiled.append(self) or compile_type(self))
    returns = Returns(add)
    assert [returns.decode(b"1"), returns.decode(b"2")] == [1, 2]
    assert compiled == [returns]


def whole(data: dict): ...


@pytest.mark.parametrize(
    ("arguments", "taken"),
    [
        (Arguments(add), {"a"}),
        (Arguments(everything), {"a", "other"}),
        (Arguments(whole, whole=True), {"a", "other"}),
        (Arguments(max), {"a", "other"}),
    ],
    ids=["its parameters", "**kwargs", "a whole payload", "no signature"],
)
def test_which_arguments_a_call_may_have(arguments, taken):
    assert {name for name in ("a", "other") if arguments.takes(name)} == taken


def test_a_whole_payload_may_have_placeholders():
    assert Arguments(whole, whole=True).encode_open(({"a": Hole(3)},), {}) == b'{"a":{"$result":3}}'
