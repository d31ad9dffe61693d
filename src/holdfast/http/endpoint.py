"""Entries of the route table, and the handling of a request: authenticate, decode, call the handler, answer."""

from __future__ import annotations

import functools
import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Receive, Send
from starlette.types import Scope as Asgi

from ..client.search import Scope
from ..codec.values import read
from ..core.errors import HoldfastError, InvalidJob
from ..observe.actors import acting
from ..observe.traces import arriving
from ..store.group_commit import guard
from . import limits
from .call import ROLES, WHOLE, Answer, Call, ClientGone, Shared, Stream, problem
from .choices import listing
from .problems import FORBIDDEN, INTERNAL, METHOD_NOT_ALLOWED, NOT_FOUND, TOO_LARGE, Kind, Refused, refused

logger = logging.getLogger("holdfast.http")
EVENTS = "text/event-stream"
UNEXPECTED = "request %s %.200r failed with an unexpected error; report it if the traceback ends in Holdfast"
Within = Callable[[Call, Scope, dict[str, Any]], Awaitable[None]]
"""Refuses a request that exceeds a token's scope, or narrows the handler's arguments to the scope."""


@functools.cache
def _hints(handler: Callable[..., Any]) -> dict[str, Any]:
    """The types of a handler's parameters; the same for every server in this process."""
    return get_type_hints(handler, include_extras=True)


class Endpoint:
    """One method of one path: the required role, the handler and the possible answers.

    The handler's parameters define the input: path parameters by name, `query` and `body` by their types.
    """

    def __init__(  # noqa: PLR0917  # a row of the route table
        self,
        method: str,
        path: str,
        role: str | None,
        handler: Callable[..., Awaitable[Answer | Stream]],
        answers: Mapping[int, Any],
        problems: Sequence[Kind] = (),
        within: Within | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        max_body: int | None = None,
        any_query: bool = False,
    ) -> None:
        self.method = method
        self.path = path
        self.role = role
        self.handler = handler
        self.answers = answers
        """By status: the type of the JSON body, None for no body, or a media type."""
        self.problems = problems
        self.headers = headers or {}
        """Request headers that it reads, with their descriptions."""
        self.max_body = max_body
        """Maximum bytes of the body; None: the service's `body_limit`."""
        self.within = within
        """The rule for tokens with a scope (`scoping.py`); None: such tokens are refused."""
        self.any_query = any_query or role is None
        """Ignore the query: probes, scrapers and caches add their own."""
        self.summary = (inspect.getdoc(handler) or "").partition("\n")[0]
        hints = _hints(getattr(handler, "__func__", handler))
        self.named = {name: hints[name] for name in re.findall(r"{(\w+)}", path)}
        """The types of the parameters in the path."""
        self.query: type[msgspec.Struct] | None = hints.get("query")
        self.body: type[msgspec.Struct] | None = hints.get("body")
        self._decode = None if self.body is None else listing(self.body, msgspec.json.Decoder(self.body).decode)

    @functools.cached_property
    def _lists(self) -> frozenset[str]:
        """Repeatable query parameters."""
        assert self.query is not None
        fields = msgspec.structs.fields(self.query)
        return frozenset(field.encode_name for field in fields if _is_list(field.type))

    async def answer(self, call: Call) -> Answer | Stream:
        """Decode the handler's arguments and call it."""
        given: dict[str, Any] = dict(call.scope["path_params"])
        if self.query is not None:
            given["query"] = self._read_query(call.scope["query_string"])
        elif call.scope["query_string"] and not self.any_query:
            raise InvalidJob(f"{self.method} {self.path} takes no query parameters; remove them")
        if self._decode is not None:
            max_body = call.service.body_limit if self.max_body is None else self.max_body
            data = await call.body(max_body)
            if data:
                call.check_json()
            if len(data) > limits.SMALL and data.count(b",") > limits.VALUES:
                raise Refused(TOO_LARGE, f"the body has more than {limits.VALUES} values: send it in parts")
            given["body"] = read(self._decode, data or b"{}", "the body")
        if self.within is not None and call.access.scope is not None:
            await self.within(call, call.access.scope, given)
        return await self.handler(call, **given)

    def _read_query(self, text: bytes) -> Any:
        assert self.query is not None
        found: dict[str, Any] = {}
        try:
            pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100)
        except ValueError as error:
            raise InvalidJob(
                f"the query string cannot be decoded: {error}; percent-encode its values as UTF-8, and send at most 100"
            ) from None
        for name, value in pairs:
            if name in self._lists:
                found.setdefault(name, []).append(value)
            elif name in found:
                raise InvalidJob(f"the query parameter {name!r:.100} may be given only once")
            else:
                found[name] = value
        try:
            return listing(self.query, functools.partial(msgspec.convert, type=self.query, strict=False))(found)
        except msgspec.ValidationError as error:
            raise InvalidJob(f"the query is not valid: {error}") from None


class Resource:
    """A path with its methods, as an ASGI app."""

    def __init__(self, service: Shared, path: str, endpoints: Sequence[Endpoint]) -> None:
        self._service = service
        self.path = path
        self._by_method = {endpoint.method: endpoint for endpoint in endpoints}
        for endpoint in endpoints:
            if endpoint.method == "GET" and endpoint.answers.get(200) != EVENTS:  # HEAD needs a response of known end
                self._by_method.setdefault("HEAD", endpoint)
        self.methods = frozenset(self._by_method)
        self._public = bool(endpoints) and all(endpoint.role is None for endpoint in endpoints)

    async def __call__(self, scope: Asgi, receive: Receive, send: Send) -> None:
        parts = self._service.parts
        clock = parts.runtime.clock
        began, before = clock.monotonic(), guard.set(self._service.policy.check)
        call = Call(self._service, scope, receive)
        try:
            with arriving(call.by_name):
                answer = await self._answer(call, scope)
        except ClientGone:
            return
        except Refused as error:
            answer = problem(error)
        except HoldfastError as error:
            refusal = refused(error)
            if refusal.kind is INTERNAL:
                logger.exception(UNEXPECTED, scope["method"], scope["path"])
            answer = problem(refusal)
        except Exception:
            logger.exception(UNEXPECTED, scope["method"], scope["path"])
            answer = problem(
                Refused(INTERNAL, "unexpected error; the request may have been carried out: see the log of the server")
            )
        finally:
            call.release_body()
            guard.reset(before)
        if parts.events.wanted("http_request"):
            ran = clock.monotonic() - began
            parts.events.answered(scope["method"], self.path, answer.status, ran, path=scope["path"], sender=call.who)
        if scope["method"] == "GET" and isinstance(answer, Answer):  # not the store's own calls, which are POST
            answer.compress(call.header(b"accept-encoding"))
        whole = scope.get(WHOLE)
        if whole is None or isinstance(answer, Stream) or not whole(answer):
            await answer.send(send)

    async def _answer(self, call: Call, scope: Asgi) -> Answer | Stream:
        endpoint = self._by_method.get(scope["method"])
        if self._public:
            self._service.auth.check_host_and_origin(call.headers)
        else:
            await call.admit()
            if endpoint is not None and endpoint.role is not None:
                if endpoint.role not in call.roles:
                    raise Refused(FORBIDDEN, _missing_role(endpoint, ROLES in scope))
                if call.access.scope is not None and endpoint.within is None:
                    detail = (
                        f"this token is only for {call.access.scope}; {endpoint.path} needs a token without a scope"
                    )
                    raise Refused(FORBIDDEN, detail)
        if endpoint is None:
            if not self.methods:
                raise Refused(NOT_FOUND, f"there is no path {scope['path']!r:.200}; /openapi.json lists all paths")
            methods = ", ".join(sorted(self.methods))
            raise Refused(
                METHOD_NOT_ALLOWED,
                f"{scope['path']!r:.200} does not accept {scope['method']}; it accepts {methods}",
                allow=methods,
            )
        if endpoint.role != "operate":
            return await endpoint.answer(call)
        with acting(call.actor):
            return await endpoint.answer(call)


def _missing_role(endpoint: Endpoint, mounted: bool) -> str:
    needs = f"{endpoint.method} {endpoint.path} needs"
    if mounted:
        return f"{needs} the role {endpoint.role!r}, which this application does not give you: ask for the permission"
    return (
        f"{needs} a token with the role {endpoint.role!r}; `holdfast token create --role {endpoint.role}` creates one"
    )


def _is_list(kind: Any) -> bool:
    return get_origin(kind) is list or any(get_origin(one) is list for one in get_args(kind))
