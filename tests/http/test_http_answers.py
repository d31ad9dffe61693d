"""A complete answer is sent at once, as uvicorn would send it in two pieces."""

import asyncio
import logging

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from holdfast.http import limits
from holdfast.http.call import Answer, nothing, problem
from holdfast.http.problems import UNAUTHORIZED, Refused
from holdfast.http.protocol import send_whole

DATE = [(b"date", b"Thu, 19 Nov 2026 12:00:00 GMT")]
ANSWERS = {
    "json": lambda: Answer(201, b'{"id":"1"}'),
    "nothing": nothing,
    "problem": lambda: problem(Refused(UNAUTHORIZED, "no", www_authenticate="Bearer")),
    "closing": lambda: problem(Refused(UNAUTHORIZED, "no", connection="close")),
    "header": lambda: Answer(200, b"text", b"text/plain", {"holdfast-next-position": "7"}),
}


class Sent(asyncio.Transport):
    """A transport that keeps what it is given."""

    def __init__(self):
        super().__init__()
        self.pieces, self.closed = [], False

    def write(self, data):
        assert not self.closed
        self.pieces.append(bytes(data))

    def close(self):
        self.closed = True


@pytest.fixture
async def cycle():
    return make_cycle()


def make_cycle(method="GET", *, keep_alive=True):
    sent, logger = Sent(), logging.getLogger("uvicorn")
    return RequestResponseCycle(
        {"type": "http", "method": method},
        sent,
        FlowControl(sent),
        logger,
        logger,
        False,
        DATE,
        asyncio.Event(),
        False,
        keep_alive,
        lambda: None,
    )


@pytest.mark.parametrize("keep_alive", [True, False])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("name", ANSWERS)
async def test_it_has_the_bytes_that_uvicorn_would_send(name, method, keep_alive):
    whole, pieces = make_cycle(method, keep_alive=keep_alive), make_cycle(method, keep_alive=keep_alive)
    assert send_whole(whole, ANSWERS[name]())
    await ANSWERS[name]().send(pieces.send)
    assert b"".join(whole.transport.pieces) == b"".join(pieces.transport.pieces)
    assert len(whole.transport.pieces) == 1
    assert whole.transport.closed == pieces.transport.closed
    assert (whole.response_complete, whole.keep_alive) == (True, pieces.keep_alive)
    assert whole.message_event.is_set()


async def test_a_large_body_is_not_copied(cycle):
    body = b"x" * (limits.SMALL + 1)
    assert send_whole(cycle, Answer(200, body))
    assert cycle.transport.pieces[1:] == [body]


async def test_an_answer_waits_for_a_client_that_does_not_read(cycle):
    cycle.flow.pause_writing()
    assert not send_whole(cycle, nothing())
    assert (cycle.transport.pieces, cycle.response_started) == ([], False)


async def test_nothing_is_sent_to_a_client_that_has_left(cycle):
    cycle.disconnected = True
    assert not send_whole(cycle, nothing())
    assert cycle.transport.pieces == []


@pytest.mark.parametrize("value", ["a\r\nb", "a\nb", "a\0"])
async def test_a_header_cannot_contain_a_line_end(value):
    with pytest.raises(ValueError, match="header"):
        Answer(200, b"", headers={"allow": value})
