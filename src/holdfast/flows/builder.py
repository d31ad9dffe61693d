"""Builds a flow: jobs, the results that they pass to each other, and what happens if one of them is dead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from ..codec import Hole, holes_in
from ..core.errors import InvalidJob
from ..core.flow_rules import number_in
from ..core.internal import Internal
from ..core.validation import checked_name
from ..tasks.handle import BlockingHandle, Handle
from ..tasks.options import name_of_codec
from ..tasks.task import Call, Task, Using

P = ParamSpec("P")
R = TypeVar("R")
ON_DEAD = ("fail", "ignore", "compensate")
Work = Task[..., R] | Using[..., R] | Call[R]
"""What can be added to a flow: a task, a task with options, or a call of one."""


class Node(Generic[R]):
    """One job of a flow. As an argument of a later job it means its result, and so does `result`."""

    def __init__(self, flow: Flow, number: int, call: Call[R]) -> None:
        self.flow = flow
        self.number = number
        self.call = call
        self.parents: dict[int, str] = {}
        self.outside: dict[str, str] = {}
        """Jobs of no flow, or of another one, that it waits for, by their ids."""
        self.allow_unfinished: int | None = None

    def __repr__(self) -> str:
        return f"<Node {self.number} of the flow: {self.call.task.name}>"

    @property
    def result(self) -> R:
        """Its result, as an argument of a later job; null if it is dead and that is ignored."""
        return cast("R", Hole(self.number))

    @property
    def is_first(self) -> bool:
        return (
            not self.parents and not self.outside
            if self.allow_unfinished is None
            else self.number <= self.allow_unfinished
        )

    def after(self, *others: Node[Any] | Handle[Any] | BlockingHandle[Any], on_dead: str = "fail") -> Node[R]:
        """Start only after these have ended: jobs of this flow, or handles of jobs that are stored already.

        `on_dead`, if one of them is dead or cancelled: "fail" ends this one too, unrun; "ignore" runs it anyway;
        "compensate" runs it only in this case, after all have ended.
        """
        if on_dead not in ON_DEAD:
            raise InvalidJob(f"on_dead must be one of {', '.join(ON_DEAD)}, not {on_dead!r}")
        for other in others:
            if self.allow_unfinished is not None:
                raise InvalidJob(
                    f"{self!r} was added by on_end and waits for all other jobs; do not call after() on it"
                )
            if not isinstance(other, Node):
                self.outside[_id_of(other)] = on_dead
                continue
            self.flow.check(other)
            if other.number >= self.number:
                raise InvalidJob(f"{self!r} can only wait for jobs that were added before it, not {other!r}")
            self.parents[other.number] = on_dead
        return self

    def compensate(self, work: Work[Any], /, *args: Any, **kwargs: Any) -> Node[Any]:
        """Add a job that runs only if this one is dead or cancelled."""
        return self.flow.add(_called(work, args, kwargs)).after(self, on_dead="compensate")

    def about(self, flow: str, *, tolerated: bool = False) -> Internal:
        """The internal metadata of its job."""
        after = tuple(sorted(self.parents.items()))
        return Internal(
            flow=flow,
            after=after,
            after_jobs=tuple(sorted(self.outside.items())),
            holes=any(True for _ in holes_in([self.call.args, self.call.kwargs])),
            tolerated=tolerated,
            allow_unfinished=self.allow_unfinished,
        )


Nodes = Node[Any] | Sequence[Node[Any]]
"""Nodes as arguments; a type checker knows the type of their results only if `node.result` is passed."""


class Flow:
    """Jobs that depend on each other. Nothing is stored until `app.enqueue_flow(flow)`, which stores all or nothing."""

    def __init__(self, name: str = "flow") -> None:
        self.name = checked_name(name, "flow")
        self.nodes: list[Node[Any]] = []

    @overload
    def add(self, work: Task[P, R] | Using[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Node[R]: ...
    @overload
    def add(self, work: Task[..., R] | Using[..., R], first: Nodes, /, *args: Nodes, **kwargs: Nodes) -> Node[R]: ...
    @overload
    def add(self, work: Call[R], /) -> Node[R]: ...
    def add(self, work: Any, /, *args: Any, **kwargs: Any) -> Node[Any]:
        """Add a job. Results of other jobs among its arguments, also nested in lists and dicts, are dependencies."""
        call = _called(work, args, kwargs)
        _refuse(call, "id", "key", "connection", "unique", "on_success", "on_dead")
        args = tuple(_plain(each, _hole) for each in call.args)
        kwargs = {name: _plain(each, _hole) for name, each in call.kwargs.items()}
        node = Node(self, len(self.nodes), Call(call.task, call.options, args, kwargs))
        for hole in holes_in([args, kwargs]):
            if hole.number >= len(self.nodes):
                raise InvalidJob(f"{node!r} takes the result of a job that is not in this flow; add that job first")
            parent = self.nodes[hole.number]
            codec = parent.call.task.codec
            if codec is not None and name_of_codec(codec) != "json":
                raise InvalidJob(
                    f"{node!r} cannot take the result of {parent!r}, whose task has its own codec; only JSON results"
                    " can be passed: read it inside the task"
                )
            node.after(parent)
        self.nodes.append(node)
        return node

    def chain(self, first: Work[Any], /, *rest: Work[Any]) -> Node[Any]:
        """Add jobs that run one after the other, each with the result of the previous one as its first argument."""
        node = self.add(first)
        for work in rest:
            call = _called(work, (), {})
            node = self.add(Call(call.task, call.options, (node, *call.args), call.kwargs))
        return node

    def group(self, works: Iterable[Work[R]]) -> list[Node[R]]:
        """Add jobs that run in parallel."""
        return [self.add(_called(work, (), {})) for work in works]

    def on_end(self, work: Work[Any], /, *args: Any, allow_unfinished: int = 0, **kwargs: Any) -> Node[Any]:
        """Add a job that runs after all jobs added before it have ended, except for `allow_unfinished` of them."""
        if isinstance(allow_unfinished, bool) or not isinstance(allow_unfinished, int) or allow_unfinished < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidJob(f"allow_unfinished must be a whole number of jobs, 0 or more, not {allow_unfinished!r}")
        node = self.add(_called(work, args, kwargs))
        if node.parents:
            raise InvalidJob(
                f"{node!r} was added by on_end, so it cannot take results of other jobs: read them inside the task"
            )
        node.allow_unfinished = allow_unfinished
        return node

    def tolerated(self) -> set[int]:
        """The jobs all of whose dependents ignore how they end."""
        edges = [edge for node in self.nodes for edge in node.parents.items()]
        return {each for each, how in edges if how == "ignore"} - {each for each, how in edges if how != "ignore"}

    def check(self, node: Node[Any]) -> None:
        """Reject a job of another flow."""
        if node.number >= len(self.nodes) or self.nodes[node.number] is not node:
            raise InvalidJob(f"{node!r} belongs to another flow; use jobs of the same flow")


def grown(flow: str, work: Work[Any], args: tuple[Any, ...], kwargs: dict[str, Any], after: Iterable[str]) -> Node[Any]:
    """A job to add to a running flow: handles of its jobs among the arguments mean their results."""
    parents = {number_in(flow, id): "fail" for id in after}

    def place(value: Any) -> Any:
        return Hole(number_in(flow, value.id)) if isinstance(value, Handle) else value

    call = _called(work, args, kwargs)
    _refuse(call, "id", "connection", "unique", "on_success", "on_dead")
    args, kwargs = (
        tuple(_plain(each, place) for each in call.args),
        {n: _plain(v, place) for n, v in call.kwargs.items()},
    )
    node = Node(Flow(), 0, Call(call.task, call.options, args, kwargs))
    node.parents = parents | {hole.number: "fail" for hole in holes_in([args, kwargs])}
    return node


def _called(work: Work[R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call[R]:
    if isinstance(work, Call):
        if args or kwargs:
            raise InvalidJob(
                f"task {work.task.name!r}: task.call(…) already has arguments; put all of them into task.call(…), or"
                " pass the task itself"
            )
        return work
    if isinstance(work, Using):
        return Call(work.task, work.options, args, kwargs)
    if isinstance(work, Task):  # pyright: ignore[reportUnnecessaryIsInstance]
        return Call(work, work.options, args, kwargs)
    raise InvalidJob(f"a flow takes tasks and calls such as task.call(1), not {work!r:.100}")


def _refuse(call: Call[Any], *names: str) -> None:
    for name in names:
        if getattr(call.options, name) is not None:
            raise InvalidJob(
                f"task {call.task.name!r}: a job of a flow cannot have {name}=; remove this option from the call or"
                " the task"
            )


def _id_of(handle: Any) -> str:
    id = getattr(handle, "id", None)
    if not isinstance(id, str):
        raise InvalidJob(f"after() takes jobs of the same flow and handles of jobs, not {handle!r:.100}")
    return id


def _plain(value: Any, place: Callable[[Any], Any]) -> Any:
    """An argument with its results, also nested in lists and dicts, replaced by placeholders."""
    if type(value) in (list, tuple):
        found = [_plain(each, place) for each in cast("list[Any]", value)]
        return found if type(value) is list else tuple(found)
    if type(value) is dict:
        return {key: _plain(each, place) for key, each in cast("dict[Any, Any]", value).items()}
    return place(value)


def _hole(value: Any) -> Any:
    return cast("Node[Any]", value).result if isinstance(value, Node) else value
