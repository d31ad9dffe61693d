"""The metrics port of a supervisor: limited connections, and only hosts of this machine."""

import asyncio
import http.client
import socket
import threading

import pytest

from holdfast.worker import port as ports
from holdfast.worker.gauges import Gauges
from support.eventually import eventually
from support.ports import free_port


@pytest.fixture
async def gauges():
    found = Gauges(f"127.0.0.1:{free_port()}", lambda: 7)
    await found.open(patient=False)
    yield found
    await found.close()


@pytest.fixture
def connect(gauges):
    """Opens idle connections."""
    made = []

    def more(number, sent=b""):
        for _ in range(number):
            one = socket.create_connection(("127.0.0.1", gauges._port), timeout=30)
            made.append(one)
            one.sendall(sent)
        return made

    yield more
    for one in made:
        one.close()


def ask(gauges, *hosts, method="GET"):
    """Status and page of one request with these Host headers."""
    calling = http.client.HTTPConnection("127.0.0.1", gauges._port, timeout=30)
    try:
        calling.putrequest(method, "/metrics", skip_host=True)
        for host in hosts:
            calling.putheader("Host", host)
        calling.endheaders()
        answer = calling.getresponse()
        return answer.status, answer.read().decode()
    finally:
        calling.close()


def serving():
    return [thread for thread in threading.enumerate() if "process_request_thread" in thread.name]


async def test_idle_connections_use_few_threads_and_do_not_block_requests(gauges, connect):
    await asyncio.to_thread(connect, 3 * ports.METRICS_CONNECTIONS, b"GET /metrics HTTP/1.1\r\nHost: ")
    status, page = await asyncio.to_thread(ask, gauges, "127.0.0.1")  # accepted after all others
    assert status == 200
    assert "holdfast_worker_active_jobs 7.0" in page
    await eventually(lambda: len(serving()) <= ports.METRICS_CONNECTIONS)


async def test_an_idle_connection_is_closed(gauges, connect, monkeypatch):
    assert ports._Handler.timeout == ports.SILENCE_LIMIT
    monkeypatch.setattr(ports._Handler, "timeout", 0.05)
    (silent,) = await asyncio.to_thread(connect, 1)
    assert await asyncio.to_thread(silent.recv, 1) == b""
    await eventually(lambda: not serving())
    assert gauges._server._silent == {}


async def test_a_running_request_is_not_closed_for_a_new_connection(gauges, connect):
    go_on = threading.Event()
    page = gauges._server.get_app()

    def slowly(environ, start_response):
        go_on.wait(90)
        return page(environ, start_response)

    gauges._server.set_app(slowly)
    asking = [asyncio.create_task(asyncio.to_thread(ask, gauges, "localhost")) for _ in range(2)]
    try:
        await eventually(lambda: len(serving()) == 2 and not gauges._server._silent)
        silent = await asyncio.to_thread(connect, 2 * ports.METRICS_CONNECTIONS)
        for one in silent[: ports.METRICS_CONNECTIONS + 2]:  # closed, because two running requests use capacity
            assert await asyncio.to_thread(one.recv, 1) == b""
    finally:
        go_on.set()
    assert [status for status, _ in await asyncio.gather(*asking)] == [200, 200]


async def test_closed_connections_free_their_capacity(gauges):
    for _ in range(2 * ports.METRICS_CONNECTIONS):
        assert (await asyncio.to_thread(ask, gauges, "localhost"))[0] == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:9091", "[::1]:9091", "LOCALHOST:80", socket.gethostname()])
async def test_hosts_of_this_machine_are_accepted(gauges, host):
    assert (await asyncio.to_thread(ask, gauges, host))[0] == 200


@pytest.mark.parametrize(
    "hosts",
    [["evil.example"], ["evil.example:9091"], ["localhost.evil.example"], ["x@localhost"], [""], [],
     ["localhost", "evil.example"], ["evil.example", "localhost"]],
)  # fmt: skip
async def test_other_hosts_are_refused_against_dns_rebinding(gauges, hosts):
    status, page = await asyncio.to_thread(ask, gauges, *hosts)
    assert status == 421
    assert "holdfast_" not in page


async def test_the_bound_host_name_is_accepted(monkeypatch):
    real = socket.getaddrinfo

    def resolved(host, *rest, **more):
        return real(host.replace("metrics.here", "127.0.0.1"), *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    gauges = Gauges(f"metrics.here:{free_port()}", lambda: 0)
    await gauges.open(patient=False)
    try:
        assert (await asyncio.to_thread(ask, gauges, "metrics.here"))[0] == 200
        assert (await asyncio.to_thread(ask, gauges, "metrics.there"))[0] == 421
    finally:
        await gauges.close()
