"""The connection on which a lone blocking caller writes: lost answers, signals, forks, closing. (U, I)"""

import errno
import os
import signal
import socket
import threading
import traceback

import pytest

from holdfast import OutcomeUnknown, StoreUnavailable
from holdfast.store import blocking, group_commit
from holdfast.store.blocking import BlockingConnection, Rejected
from support.blocking_paths import SERVERS, connection_of, server_url, wait_until_connected
from support.inside import session_of

talk = BlockingConnection._talk


@pytest.fixture(params=SERVERS)
def app(request, make_app, monkeypatch):
    """An app with a connection for blocking callers."""
    monkeypatch.setattr(group_commit, "RESENDS", (0.0, 0.0, 0.0))
    monkeypatch.setattr(blocking, "RECONNECT_PAUSE", 0.0)
    app = make_app(server_url(request.param))

    @app.task
    def noop(n: int = 0) -> None: ...

    with app.sync:
        for key in (None, "k"):  # a new server does not know the scripts, and rejects the first request
            app.sync.submit("noop", b"{}", json=True, key=key, id="first")
            app.sync.delete("first")
        wait_until_connected(connection_of(app))
        yield app


def ids(app):
    return {job.id for job in app.sync.jobs().jobs}


@pytest.fixture
def talking(monkeypatch):
    """Replaces the next exchanges by these functions."""

    def replace(*functions):
        left = list(functions)

        def next_one(self, sock, data, read):
            return (left.pop(0) if left else talk)(self, sock, data, read)

        monkeypatch.setattr(BlockingConnection, "_talk", next_one)

    return replace


def lose_request(self, sock, data, read):
    raise ConnectionResetError(errno.ECONNRESET, "lost on the way")


def lose_answer(self, sock, data, read):
    talk(self, sock, data, read)
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")  # as a socket does


@pytest.mark.parametrize("lose", [lose_request, lose_answer])
@pytest.mark.parametrize("options", [{}, {"id": "chosen"}, {"key": "k"}], ids=["plain", "id", "key"])
def test_a_job_whose_answer_was_lost_is_stored_once(app, talking, lose, options):
    talking(lose)
    handle = app.sync.submit("noop", b"{}", json=True, **options)
    assert ids(app) == {handle.id}
    other = app.sync.enqueue("noop", 2)
    assert ids(app) == {handle.id, other.id}


@pytest.mark.parametrize("lose", [lose_request, lose_answer])
def test_a_job_that_may_be_stored_is_never_called_unwritten(app, talking, monkeypatch, lose):
    async def away(_):
        raise StoreUnavailable("nothing was written")

    talking(lose)
    with monkeypatch.context() as outage:
        outage.setattr(session_of(app).store, "write", away)
        with pytest.raises(OutcomeUnknown, match=r"lost on the way|no answer within") as raised:
            app.sync.submit("noop", b"{}", json=True, id="chosen")
    assert raised.value.retry_safe
    assert raised.value.job_ids == ("chosen",)
    assert ids(app) == ({"chosen"} if lose is lose_answer else set())


def test_a_server_that_does_not_answer_is_not_waited_for_for_ever(make_app, monkeypatch):
    app = make_app(server_url("redis") + "&timeout=0.2")
    with app.sync:
        app.sync.submit("noop", b"{}", json=True, id="first")
        wait_until_connected(connection_of(app))
        monkeypatch.setattr(socket.socket, "sendall", lambda *_: None)
        app.sync.submit("noop", b"{}", json=True, id="second")
        assert not connection_of(app).connected
        assert ids(app) == {"first", "second"}


def test_a_rejected_request_is_written_on_the_loop(app, talking):
    def reject(*_):
        raise Rejected

    talking(reject)
    handle = app.sync.enqueue("noop")
    assert ids(app) == {handle.id}
    assert not connection_of(app).connected


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError, OSError("of a handler")], ids=repr)
def test_an_interrupted_caller_leaves_no_answer_to_the_next(app, talking, error):
    def interrupt(self, sock, data, read):
        sock.sendall(data)
        raise error  # as the handler of a signal may do

    line = connection_of(app)._line
    talking(interrupt)
    with pytest.raises(error if isinstance(error, type) else OSError):
        app.sync.submit("noop", b"{}", json=True, id="first")
    assert connection_of(app)._line is not line
    wait_until_connected(connection_of(app))
    app.sync.submit("noop", b"{}", json=True, id="second", key="k")
    app.sync.submit("noop", b"{}", json=True, id="third")
    assert ids(app) >= {"second", "third"}


def test_a_connection_that_the_server_closed_is_not_used(app, talking):
    def never(*_):
        pytest.fail("it was used")

    connection = connection_of(app)
    [sock, _] = connection._line
    talking(never)
    sock.shutdown(2)  # reads as a connection that the other side has closed
    handle = app.sync.enqueue("noop")
    assert ids(app) == {handle.id}
    wait_until_connected(connection)


class Held:
    """A caller on a thread of its own, in the middle of its request until `go` is set."""

    def __init__(self, app, talking):
        self.go, self.used, self.made, inside = threading.Event(), [], [], threading.Event()

        def wait(connection, sock, data, read):
            self.used.append(sock)
            inside.set()
            assert self.go.wait(90)
            return talk(connection, sock, data, read)

        talking(wait)
        self.thread = threading.Thread(target=lambda: self.made.append(app.sync.enqueue("noop").id))
        self.thread.start()
        assert inside.wait(90)

    def finish(self):
        self.go.set()
        self.thread.join(90)


def test_a_caller_that_finds_it_in_use_writes_on_the_loop(app, talking):
    first = Held(app, talking)
    second = app.sync.enqueue("noop")
    assert (ids(app), first.made) == ({second.id}, [])
    first.finish()
    assert ids(app) == {second.id, *first.made}


def test_closing_lets_the_caller_that_uses_it_finish(app, talking):
    first = Held(app, talking)
    app.sync.close()
    assert first.used[0].fileno() >= 0
    first.finish()
    assert first.used[0].fileno() == -1
    assert ids(app) == set(first.made)


def test_a_connection_that_cannot_be_made_is_not_missed(app, talking, monkeypatch):
    connection = connection_of(app)
    tried = []

    async def refuse():
        tried.append(1)
        raise OSError("no more connections")

    monkeypatch.setattr(connection, "_connect", refuse)
    monkeypatch.setattr(blocking, "RECONNECT_PAUSE", 60.0)
    talking(lose_request)
    handles = [app.sync.enqueue("noop") for _ in range(5)]
    assert ids(app) == {handle.id for handle in handles}
    assert tried == [1], "the next attempt is made after a pause"


def test_a_forked_child_has_a_connection_of_its_own(app):
    line = connection_of(app)._line
    child = os.fork()
    if not child:
        signal.alarm(30)
        status = 1
        try:
            app.sync.submit("noop", b"{}", json=True, id="child 0")
            wait_until_connected(connection_of(app))
            assert line[0].fileno() == -1, "the parent's socket is open here"
            for n in range(1, 20):
                app.sync.submit("noop", b"{}", json=True, id=f"child {n}")
            status = 0
        except BaseException:  # noqa: BLE001  # it must never return into the parent's code
            traceback.print_exc()
        finally:
            os._exit(status)
    for n in range(20):
        app.sync.submit("noop", b"{}", json=True, id=f"parent {n}")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ids(app) == {f"{who} {n}" for who in ("parent", "child") for n in range(20)}
    assert connection_of(app)._line is line, "the parent's connection was closed by the child"
