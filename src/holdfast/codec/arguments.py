"""A task's arguments and its result, compiled once from the function's signature.

A call takes the fast path if one encoding, one typed decoding and one comparison prove it right. All others take the
slow path, argument by argument, which names the argument that is rejected, or finds nothing wrong.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, get_args, get_origin

import msgspec
from msgspec import UNSET
from msgspec.structs import astuple

from ..core.errors import ConfigError, InvalidJob
from .changes import SCALARS
from .holes import holes_in, is_open, opened
from .items import item_type, result_type
from .parameter import Parameter
from .shape import STAR, Annotations, Injected, Shape, name_of, signature_of
from .values import (
    encode_value,
    flaw,
    has_nul,
    is_flat,
    not_finite,
    plain_json,
    read,
    read_any,
    reader,
    sorted_json,
    write,
    write_exactly,
)

Call = tuple[tuple[Any, ...], dict[str, Any]]

_read_object = reader(dict[str, msgspec.Raw])
_read_list = reader(list[msgspec.Raw])


class Arguments:
    """A task's parameters, compiled once: Python call -> JSON payload -> Python call."""

    def __init__(
        self, fn: Callable[..., object], *, whole: bool = False, batch: bool = False, context_type: type | None = None
    ) -> None:
        signature = signature_of(fn)
        self._label = f"{name_of(fn)}()"
        self._shape = None if signature is None else Shape(fn, signature, context_type)
        if batch:
            _take_items(self._label, self._shape)
        self._whole = _the_one_parameter(self._label, self._shape) if whole else None
        self._compiled: _ByName | _Whole | _Unsigned | None = None
        self.takes_context = self._shape is not None and self._shape.context is not None
        """Its first parameter is the job's context, which the worker passes; it is never stored."""
        self.injected: dict[str, Injected] = {} if self._shape is None else self._shape.injected
        """The parameters that the worker fills with dependencies; likewise."""

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """Encode a call as JSON; an argument that would not be decoded to the same value is rejected by name."""
        return (self._compiled or self._compile()).encode(args, kwargs)

    def encode_open(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """Encode a call with placeholders. Their values are known only when it runs, and are checked then."""
        return (self._compiled or self._compile()).encode_open(args, kwargs)

    def decode(self, payload: bytes) -> Call:
        """Decode the call of a payload, typed by the annotations."""
        return (self._compiled or self._compile()).decode(payload)

    def check_open(self, payload: bytes) -> None:
        """Raise what `decode` would; the types of arguments with placeholders are not checked."""
        (self._compiled or self._compile()).check_open(payload)

    @property
    def defaults(self) -> dict[str, Any]:
        """The parameters that may be omitted, and their defaults."""
        return {} if self._shape is None else self._shape.defaults

    def named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """A call's arguments by parameter, with defaults."""
        return kwargs if self._shape is None else {**self._shape.defaults, **self._shape.bind(args, kwargs)}

    def partly_named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The given arguments of a call by parameter; others may be missing."""
        return kwargs if self._shape is None else self._shape.bind_some(args, kwargs)

    def refuse_injected(self, kwargs: dict[str, Any]) -> None:
        """InvalidJob if a call has an argument that the worker fills."""
        for name in self.injected.keys() & kwargs:
            assert self._shape is not None
            self._shape.refuse_injected(name)

    def takes(self, name: str) -> bool:
        """Whether a call may have an argument with this name."""
        shape = self._shape
        if name in self.injected:
            return False
        return shape is None or shape.extra is not None or self._whole is not None or name in shape.names

    def _compile(self) -> _ByName | _Whole | _Unsigned:
        # At first use, since an annotation may name what is defined after the function.
        if self._shape is None:
            self._compiled = _Unsigned(self._label)
        elif self._whole is not None:
            self._compiled = _Whole(self._shape, self._whole)
        else:
            self._compiled = _ByName(self._shape)
        return self._compiled


class Returns:
    """A task's result, typed by its return annotation.

    The work is done, so a result is rejected only if it cannot be JSON, never for its type.
    """

    def __init__(self, fn: Callable[..., object], *, batch: bool = False) -> None:
        signature = signature_of(fn)
        self._batch = batch
        annotated = signature is not None and signature.return_annotation is not signature.empty
        self._annotations = Annotations(fn)
        self._hint = self._annotations.resolve(signature.return_annotation) if signature and annotated else Any
        self._annotations.forget_locals()
        self._what = f"the result of {name_of(fn)}()"
        self._parameter: Parameter | None = None

    def encode(self, value: object) -> bytes:
        return encode_value(value, what=self._what)

    def decode(self, data: bytes) -> Any:
        return (self._parameter or self._compile()).decode(data, self._what)

    def _compile(self) -> Parameter:
        hint = self._annotations.resolve(self._hint)
        if get_origin(hint) in (Awaitable, Coroutine):
            hint = get_args(hint)[-1]
        if self._batch:
            hint = result_type(hint)
        self._parameter = Parameter("return", self._what, Any if hint is type(None) else hint)
        return self._parameter


def encode_untyped(args: tuple[Any, ...], kwargs: dict[str, Any], *, task: str = "the task") -> bytes:
    """Encode a call without its function: named arguments by name, the others under "*"."""
    if STAR in kwargs:
        raise InvalidJob(
            f"{task} cannot take an argument named {STAR!r}: the payload has its positional arguments under this name;"
            " rename the argument"
        )
    advice = "pass only JSON types, or enqueue the function itself, whose annotations keep types"
    for index, value in enumerate(args, 1):
        write_exactly(value, f"argument {index} of {task}", advice)
    for name, value in kwargs.items():
        write_exactly(value, f"argument {name!r} of {task}", advice)
    named = dict(sorted(kwargs.items()))
    return write({STAR: args, **named} if args else named, f"the payload of {task}")


class _ByName:
    """The usual encoding: an object of the parameters by name."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._names = shape.names
        self._all_by_position = len(shape.names) if shape.names == shape.positional else None
        self._what = f"the payload of {shape.label}()"
        self._parameters = {name: _parameter(shape, name) for name in shape.names}
        if shape.star is not None:
            self._parameters[STAR] = _parameter(shape, shape.star, prefix="*")
        self._extra = None if shape.extra is None else _parameter(shape, shape.extra, prefix="**")
        every = (*self._parameters.values(), self._extra)
        self._dump = self._dump_sorted if any(one and one.unordered for one in every) else plain_json
        self._untyped = tuple(name for name in shape.names if self._parameters[name].untyped)
        # A struct has no room for *args and **kwargs, and its fields are passed by name.
        simple = shape.star is None and shape.extra is None and not shape.positional_only
        self._read = self._struct_reader() if simple else None
        hints = tuple(self._parameters[name].hint for name in shape.names)
        self._kept = hints if simple and all(hint is str or hint is int or hint is bool for hint in hints) else None
        """The types of the arguments, if JSON keeps every value of exactly these types: none is read back to check."""

    def _struct_reader(self) -> Callable[[bytes], Any]:
        """Decodes all parameters at once; the fields have generated names, since a parameter may have any name."""
        fields: list[tuple[str, Any, Any]] = []
        for index, name in enumerate(self._names):
            default = UNSET if name in self._shape.defaults else msgspec.NODEFAULT
            fields.append((f"p{index}", self._parameters[name].hint, msgspec.field(name=name, default=default)))
        return reader(msgspec.defstruct(self._shape.label, fields, kw_only=True, forbid_unknown_fields=True))

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        if kwargs or len(args) != self._all_by_position:
            values = self._shape.bind(args, kwargs)
            args = tuple(values.values())
        else:
            values = dict(zip(self._names, args))  # noqa: B905 - the lengths are compared above, and strict= costs
        if self._read is not None:
            try:
                payload = self._dump(values)
                if self._kept == tuple(map(type, args)) and not has_nul(payload):
                    return payload
                fields = astuple(self._read(payload))
                if len(fields) != len(args):
                    fields = tuple(field for field in fields if field is not UNSET)
                if (
                    fields == args
                    and (is_flat(payload, args) or (flaw(payload) is None and not_finite(payload, values) is None))
                    and not (self._untyped and self._needs_care(values))
                ):
                    return payload
            except Exception:  # noqa: BLE001, S110 - the careful way finds what is wrong, and where
                pass
        return self._encode_carefully(values)

    def _dump_sorted(self, values: dict[str, Any]) -> bytes:
        ready = dict(values)
        for name, value in values.items():
            one = self._parameters.get(name, self._extra)
            if one and one.unordered:
                ready[name] = msgspec.Raw(sorted_json(value))
        return plain_json(ready)

    def _needs_care(self, values: dict[str, Any]) -> bool:
        return any(type(values.get(name)) not in SCALARS for name in self._untyped)

    def _encode_carefully(self, values: dict[str, Any]) -> bytes:
        self._check(values)
        return write(values, self._what, self._dump)

    def _check(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            if one := self._parameters.get(name):
                one.encode(value)
            elif self._extra is not None:
                self._extra.encode(value, f"argument {name!r} of {self._shape.label}()")

    def encode_open(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        values = self._shape.bind(args, kwargs)
        whole = {name: value for name, value in values.items() if not any(holes_in(value))}
        self._check(whole)
        return write({**opened(values, self._what), **whole}, self._what, self._dump)

    def decode(self, payload: bytes) -> Call:
        if self._read is None:
            return self._decode_carefully(payload)
        try:
            fields = astuple(self._read(payload))
        except Exception:  # noqa: BLE001 - the careful way finds what is wrong, and where
            return self._decode_carefully(payload)
        values = dict(zip(self._names, fields))  # noqa: B905 - there is a field for each name
        if self._shape.defaults:
            values = {name: value for name, value in values.items() if value is not UNSET}
        return (), values

    def check_open(self, payload: bytes) -> None:
        self._typed(payload, closed=False)

    def _decode_carefully(self, payload: bytes) -> Call:
        return self._shape.call(*self._typed(payload))

    def _typed(self, payload: bytes, *, closed: bool = True) -> tuple[dict[str, Any], list[Any]]:
        """The arguments by name, and the other positional ones; unless `closed`, without those with placeholders."""
        given = _object(payload, self._what)
        given, rest = self._shape.place(given, _list(given.pop(STAR, None), self._what))
        if not closed:
            given = {name: raw for name, raw in given.items() if not is_open(bytes(raw))}
            rest = [raw for raw in rest if not is_open(bytes(raw))]
        values: dict[str, Any] = {}
        for name, raw in given.items():
            if one := self._parameters.get(name):
                values[name] = one.decode(raw)
            elif self._extra is not None:
                values[name] = self._extra.decode(raw, f"argument {name!r} of {self._shape.label}()")
        return values, self._parameters[STAR].decode(plain_json(rest)) if rest else []


class _Whole:
    """The payload is the function's one argument."""

    def __init__(self, shape: Shape, name: str) -> None:
        self._shape = shape
        self._parameter = _parameter(shape, name)
        self._what = f"the payload of {shape.label}()"

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        values = self._shape.bind(args, kwargs)
        if set(values) != {self._parameter.name}:
            raise InvalidJob(f"{self._shape.label}() takes exactly one argument, {self._parameter.name!r}: the payload")
        payload = self._parameter.encode(values[self._parameter.name], self._what)
        _object(payload, self._what)
        return payload

    def encode_open(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        values = self._shape.bind(args, kwargs)
        return write(opened(values.get(self._parameter.name), self._what), self._what)

    def decode(self, payload: bytes) -> Call:
        _object(payload, self._what)
        value = self._parameter.decode(payload, self._what)
        return self._shape.call({self._parameter.name: value}, [])

    def check_open(self, payload: bytes) -> None:
        _object(payload, self._what)


class _Unsigned:
    """A builtin without a signature."""

    def __init__(self, label: str) -> None:
        self._label = label

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        return encode_untyped(args, kwargs, task=self._label)

    def encode_open(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        what = f"the payload of {self._label}"
        return self.encode(tuple(opened(args, what)), opened(kwargs, what))

    def decode(self, payload: bytes) -> Call:
        what = f"the payload of {self._label}"
        given = _object(payload, what)
        rest = _list(given.pop(STAR, None), what)
        return tuple(read(read_any, raw, what) for raw in rest), {
            name: read(read_any, raw, what) for name, raw in given.items()
        }

    def check_open(self, payload: bytes) -> None:
        self.decode(payload)


def _parameter(shape: Shape, name: str, prefix: str = "") -> Parameter:
    hint = shape.annotations.resolve(shape.hints[name])
    if shape.batch:
        hint = item_type(hint, f"{shape.label}()")
    may_be_none = name in shape.defaults and shape.defaults[name] is None
    one = Parameter(prefix + name, f"{shape.label}()", hint, may_be_none=may_be_none)
    # Positional arguments travel together, as a list of what each is annotated with.
    return Parameter(one.name, one.of, list[one.hint]) if prefix == "*" and not one.untyped else one


def _the_one_parameter(label: str, shape: Shape | None) -> str:
    names = () if shape is None else shape.names
    if shape is None or not names or shape.required not in ((), names[:1]):
        raise ConfigError(
            f"{label} has payload=True, so it needs one parameter for the whole payload, after the context if any;"
            " other parameters must have defaults"
        )
    return names[0]


def _take_items(label: str, shape: Shape | None) -> None:
    """Make calls of a batch function take one item of its list."""
    if shape is None or len(shape.names) != 1 or shape.required != shape.names or shape.star or shape.extra:
        raise ConfigError(f"{label} handles a batch: it must have one parameter, the list of the jobs' arguments")
    if shape.context is not None:
        raise ConfigError(f"{label} handles a batch, whose jobs share no context: remove parameter {shape.context!r}")
    item_type(shape.hints[shape.names[0]], label)
    shape.batch = True


def _object(payload: bytes, what: str) -> dict[str, msgspec.Raw]:
    return read(_read_object, payload, what)


def _list(raw: msgspec.Raw | None, what: str) -> list[msgspec.Raw]:
    return [] if raw is None else read(_read_list, raw, f"{STAR!r} in {what}")
