"""One parameter of a task: the type of its annotation, as far as JSON can keep it."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any, Optional, get_args, get_origin

from ..core.errors import InvalidJob
from .changes import Change, changed, name_of_type
from .values import plain_json, read, reader, sorted_json, write


class Parameter:
    """Encodes and decodes one argument; errors name it."""

    def __init__(self, name: str, of: str, hint: Any, *, may_be_none: bool = False) -> None:
        self.name = name
        self.of = of
        self.annotation = hint
        if may_be_none and hint is not Any:
            # `x: int = None` is written often, and meant as `int | None`.
            hint = Optional[hint]  # noqa: UP045 - the other spelling fails for a hint that is not a type
        self.hint, self._obstacle = _usable(hint)
        self.untyped = self.hint is Any or self.hint is object
        self.unordered = _holds_a_set(self.hint)
        self._read: Callable[[bytes], Any] = reader(self.hint)

    def encode(self, value: object, what: str | None = None) -> bytes:
        """Encode the value, after checking that the function will get it back."""
        what = what or f"parameter {self.name!r} of {self.of}"
        data = write(value, what, sorted_json if self.unordered else plain_json)
        try:
            back = self._read(data)
        except Exception as error:
            hint, kind = _named(self.annotation), name_of_type(type(value))
            raise InvalidJob(f"{what} does not fit its annotation {hint}: {error} (given: {kind})") from error
        if change := changed(value, back, exact=self.untyped):
            raise InvalidJob(f"{what}: {change}; {self._advice(change)}")
        return data

    def decode(self, data: bytes, what: str | None = None) -> Any:
        return read(self._read, data, what or f"parameter {self.name!r} of {self.of}")

    def _advice(self, change: Change) -> str:
        if not self.untyped:
            return f"pass the annotated type, {_named(self.annotation)}, or change the annotation"
        if self._obstacle:
            return f"annotate parameter {self.name!r} with types that JSON can tell apart ({self._obstacle})"
        example = f"with a type that contains {change.was}" if change.path else f"as {change.was}"
        return f"annotate parameter {self.name!r} {example}, and the type is kept"


def _usable(hint: Any) -> tuple[Any, str | None]:
    """The type if it can be decoded, else Any with the reason."""
    if isinstance(hint, str):
        return Any, f"the annotation {hint!r} names an unknown type"
    if getattr(hint, "_is_protocol", False) and not getattr(hint, "_is_runtime_protocol", False):
        return Any, "a protocol does not say which class to create"
    try:
        reader(hint)
    except Exception as error:  # noqa: BLE001 - hooks of a type may raise any exception
        return Any, str(error)
    return hint, None


def _holds_a_set(hint: Any) -> bool:
    kind = get_origin(hint) or hint
    return (isinstance(kind, type) and issubclass(kind, AbstractSet)) or any(map(_holds_a_set, get_args(hint)))


def _named(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
