"""One value as JSON: how it is encoded and decoded, and what is rejected before it is stored.

Every store accepts the same JSON: no NaN, no lone surrogates, no NUL, at most MAX_NESTING levels.
"""

from __future__ import annotations

import base64
import math
import os
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any, cast, get_origin

import msgspec

from ..core.errors import InvalidJob
from .changes import SCALARS, changed, name_of_type, place

MAX_NESTING = 100
"""Maximum nesting of lists and objects, which every JSON decoder of a worker supports."""

_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_FLAT = frozenset((str, int, bool, type(None)))
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_TO_SQUARE = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def _to_json(value: object) -> object:
    """Write what msgspec does not know: paths, pydantic models, subclasses of str, int and float."""
    if isinstance(value, os.PathLike):
        return os.fspath(cast("os.PathLike[str]", value))
    if hasattr(type(value), "__pydantic_validator__"):
        # The names that validation reads, and nothing that it would refuse to read back.
        return cast("Any", value).model_dump(mode="json", by_alias=True, round_trip=True)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise TypeError(f"{name_of_type(type(value))} has no JSON equivalent")


def _from_json(kind: Any, value: Any) -> object:
    """Read what `_to_json` wrote, for an annotation that msgspec does not know."""
    if hasattr(kind, "__pydantic_validator__"):
        # From JSON text, since a strict model takes a date from text but not from a str.
        return kind.model_validate_json(plain_json(value))
    origin: Any = get_origin(kind) or kind
    if isinstance(value, origin):
        return value
    if issubclass(origin, type(value)) or (isinstance(value, str) and hasattr(origin, "__fspath__")):
        return origin(value)
    raise TypeError(f"Expected `{name_of_type(kind)}`, got `{name_of_type(type(value))}`")


plain_json = msgspec.json.Encoder(enc_hook=_to_json).encode
_in_order = msgspec.json.Encoder(enc_hook=_to_json, order="deterministic").encode


def sorted_json(value: object) -> bytes:
    """Encode with sets sorted: a set has no order, and the same call must give the same bytes."""
    try:
        return _in_order(value)
    except TypeError:  # a dict with keys other than str, which cannot be sorted
        return plain_json(value)


def reader(kind: Any) -> Callable[[bytes], Any]:
    """A typed decoder; raises whatever msgspec or the type says when it cannot be built."""
    return msgspec.json.Decoder(kind, dec_hook=_from_json).decode


read_any = reader(Any)


def encode_value(value: object, *, exact: bool = False, what: str = "the value") -> bytes:
    """Encode a result or a checkpoint; `exact` rejects what would be decoded as another type."""
    if exact:
        return write_exactly(value, what, "pass only JSON types, such as a string, a list or a dict")
    return write(value, what)


def decode_value(data: bytes, type: Any = Any, *, what: str = "the value") -> Any:  # noqa: A002 - as msgspec names it
    """Decode a result or a checkpoint, typed if a type is given."""
    return read(read_any if type is Any else reader(type), data, what)


def check_json(payload: bytes, what: str = "the payload", *, any_value: bool = False) -> None:
    """Reject JSON given as bytes for the same reasons as `encode`; a payload must be an object."""
    value = read(read_any, payload, what)
    if not (any_value or isinstance(value, dict)):
        raise InvalidJob(f"{what} must be a JSON object of arguments by name, not {name_of_type(type(value))}")
    if reason := flaw(payload):
        raise InvalidJob(f"{what} {reason}")


def shown(payload: bytes, codec: str) -> Any:
    """A payload or result for display; never raises, never unpickles."""
    if codec == "cloudpickle":
        return {"$cloudpickle": f"{len(payload)} bytes"}
    raw = {"$bytes": base64.b64encode(payload).decode()}
    if codec != "json":
        return raw
    try:
        value = read_any(payload)
    except (ValueError, RecursionError) as error:
        return {"$undecodable": str(error), **raw}
    return value if _shallow(payload) else {"$undecodable": f"nested deeper than {MAX_NESTING} levels", **raw}


def write(value: object, what: str, dump: Callable[[object], bytes] = plain_json) -> bytes:
    """Encode one value; an error names it by `what`."""
    try:
        payload = dump(value)
    except UnicodeError:
        raise InvalidJob(
            f"{what} contains a lone surrogate or invalid text; correct the text, or pass and annotate it as bytes"
        ) from None
    except RecursionError:
        raise InvalidJob(
            f"{what} is nested deeper than {MAX_NESTING} levels, or contains itself; make it flatter"
        ) from None
    except Exception as error:
        raise InvalidJob(f"{what} cannot be encoded as JSON: {error}; pass plain data or a dataclass") from error
    if reason := flaw(payload):
        raise InvalidJob(f"{what} {reason}")
    if (path := not_finite(payload, value)) is not None:
        raise InvalidJob(f"{what} contains NaN or infinity{place(path)}, which is not JSON; pass None or text instead")
    return payload


def write_exactly(value: object, what: str, advice: str) -> bytes:
    """Encode one value without an annotation to keep its type."""
    payload = write(value, what)
    if type(value) not in SCALARS and (change := changed(value, read(read_any, payload, what), exact=True)):
        raise InvalidJob(f"{what}: {change}; {advice}")
    return payload


def read(decode: Callable[[bytes], Any], data: bytes, what: str) -> Any:
    """Decode one value; an error names it by `what`."""
    try:
        return decode(data)
    except RecursionError:
        raise InvalidJob(f"{what} is nested deeper than {MAX_NESTING} levels; make it flatter") from None
    except Exception as error:
        if isinstance(error, msgspec.ValidationError) or not isinstance(error, msgspec.DecodeError | UnicodeError):
            raise InvalidJob(f"{what} is invalid: {error}") from error
        hint = ", perhaps a lone surrogate" if b"\\ud" in bytes(data).lower() else ""
        raise InvalidJob(f"{what} is not usable JSON: {error}{hint}") from error


def flaw(payload: bytes) -> str | None:
    """What is invalid in well-formed JSON; None if nothing."""
    if has_nul(payload):
        return "contains the character \\u0000, which not every store can keep; remove it, or annotate it as bytes"
    if not _shallow(payload):
        return f"is nested deeper than {MAX_NESTING} levels; make it flatter"
    return None


def is_flat(payload: bytes, values: Iterable[object]) -> bool:
    """Whether a long payload is only of text and whole numbers, without NUL: it has no flaw and nothing not finite.

    Searching a megabyte of text for the rest takes three times as long as encoding it.
    """
    return len(payload) > MAX_NESTING and _FLAT.issuperset(map(type, values)) and not has_nul(payload)


def has_nul(payload: bytes) -> bool:
    return b"\\" in payload and b"\\u0000" in payload and _NUL.search(payload) is not None


def _shallow(payload: bytes) -> bool:
    if len(payload) <= MAX_NESTING or payload.count(b"[") + payload.count(b"{") <= MAX_NESTING:
        return True
    # Removes one level per iteration in C code: the payload may be large.
    brackets = _STRING.sub(b"", payload).translate(_TO_SQUARE, _NOT_BRACKETS)
    for _ in range(MAX_NESTING):
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return True
    return False


def not_finite(payload: bytes, value: object) -> str | None:
    """The path in `value` of a NaN or an infinity, which `payload` has as null."""
    if b"null" not in payload:
        return None
    return _not_finite(msgspec.to_builtins(value, enc_hook=_to_json, str_keys=True))


def _not_finite(value: Any) -> str | None:
    if isinstance(value, float):
        return None if math.isfinite(value) else ""
    items: Iterable[tuple[str, Any]] = ()
    if isinstance(value, dict):
        items = ((f".{key}", item) for key, item in cast("dict[str, Any]", value).items())
    elif isinstance(value, list | tuple | set | frozenset):
        items = ((f"[{index}]", item) for index, item in enumerate(cast("Collection[Any]", value)))
    for step, item in items:
        if type(item) not in (str, int, bool) and (path := _not_finite(item)) is not None:
            return step + path
    return None
