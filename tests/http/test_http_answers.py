"""The head of an answer is sent together with its body, and never waits for more than a turn of the loop."""

import asyncio

import pytest

from holdfast.http import limits
from holdfast.http.protocol import WholeAnswers

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


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

    def is_closing(self):
        return self.closed


@pytest.fixture
async def sent():
    return Sent()


@pytest.fixture
async def answers(sent):
    return WholeAnswers(sent, asyncio.get_running_loop())


async def test_head_and_body_are_sent_together(sent, answers):
    for body in (b"first", b""):
        answers.write(HEAD)
        answers.write(body)
    assert sent.pieces == [HEAD + b"first", HEAD]


async def test_a_large_body_is_not_copied(sent, answers):
    body = b"x" * (limits.SMALL + 1)
    answers.write(HEAD)
    answers.write(body)
    assert sent.pieces == [HEAD, body]


async def test_the_head_of_a_stream_does_not_wait_for_its_first_piece(sent, answers):
    answers.write(HEAD)
    await asyncio.sleep(0)
    assert sent.pieces == [HEAD]
    answers.write(b"piece")
    answers.write(b"another")
    assert sent.pieces[1:] == [b"piece", b"another"]


async def test_the_head_is_sent_before_the_connection_closes(sent, answers):
    answers.write(HEAD)
    answers.close()
    await asyncio.sleep(0)
    assert (sent.pieces, sent.closed) == ([HEAD], True)
