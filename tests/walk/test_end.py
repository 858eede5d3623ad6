"""The end: SIGTERM takes nothing new, lets running calls answer, ends the streams well, and leaves nothing behind (wire
contract, section 3)."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable

import pytest

from tests.walk.client import Stream, text_of, trial
from tests.walk.conftest import Start
from tests.walk.running import Running, eventually

GOODBYE = b": the gateway is shutting down\n\n"
PING = {"jsonrpc": "2.0", "id": "ping", "method": "ping"}


def ctrl_c(gateway: Running) -> None:
    """What a terminal does: SIGINT to the whole process group."""
    os.killpg(gateway.process.pid, signal.SIGINT)


def sigterm(gateway: Running) -> None:
    gateway.tell(signal.SIGTERM)


def drains(gateway: Running) -> bool:
    return eventually(lambda: gateway.connect().request("GET", "/readyz", []).status == 503)


def running(stream: Stream, identifier: str, seconds: float) -> None:
    """Has a call sleep; behind it, a ping's answer shows that it was taken in."""
    assert stream.post(trial(identifier, "sleep", seconds=seconds)).status == 202
    assert stream.call("ping", identifier="ping")["result"] == {}


@pytest.mark.parametrize("end", [sigterm, ctrl_c])
def test_a_running_call_is_answered_and_50_streams_end_well(start: Start, end: Callable[[Running], None]) -> None:
    gateway = start()
    token = gateway.token()
    streams = [gateway.stream(token) for _ in range(50)]
    calling = streams[25]
    running(calling, "last", 1)
    end(gateway)
    answer = calling.message()
    answered = time.monotonic()
    assert (answer["id"], text_of(answer)) == ("last", "done")
    for stream in streams:
        assert stream.rest() == [GOODBYE]
        assert stream.ended  # the last chunk came: the end is no cut
        stream.close()
    assert gateway.wait() == 0
    took = time.monotonic() - answered
    print(f"{end.__name__} with 50 streams: gone {took:.2f} s after the answer of the running call")
    assert took < 3
    assert "Traceback" not in gateway.log
    assert "ERROR" not in gateway.log


def test_nothing_new_is_taken_while_running_calls_end(start: Start) -> None:
    gateway = start()
    token = gateway.token()
    stream, idle = gateway.stream(token), gateway.stream(token)
    running(stream, "last", 2)
    headers = [("Authorization", f"Bearer {token}")]
    before = gateway.connect()  # a connection of before is not treated better than a new one
    assert before.request("GET", "/readyz", []).status == 200
    gateway.tell(signal.SIGTERM)
    assert drains(gateway)
    for connection in (before, gateway.connect()):
        response = connection.request("GET", "/sse", headers)
        assert (response.status, response.body, response.header("Retry-After")) == (503, b"Busy\n", "1")
        response = connection.request("GET", "/readyz", [])
        assert (response.status, response.body) == (503, b"Busy\n")
        response = connection.request("GET", "/healthz", [])
        assert (response.status, response.body) == (200, b"ok\n")
    response = idle.post(PING)
    assert (response.status, response.body, response.header("Retry-After")) == (503, b"Busy\n", "1")
    refusal = idle.message()
    assert (refusal["id"], refusal["error"]["message"]) == ("ping", "Busy")
    assert text_of(stream.message()) == "done"
    assert stream.rest() == idle.rest() == [GOODBYE]
    assert gateway.wait() == 0


def test_more_signals_change_nothing(start: Start) -> None:
    gateway = start()
    stream = gateway.stream(gateway.token())
    running(stream, "last", 1)
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        os.killpg(gateway.process.pid, number)
        assert drains(gateway)
    assert text_of(stream.message()) == "done"
    assert stream.rest() == [GOODBYE]
    assert gateway.wait() == 0
    assert "Traceback" not in gateway.log


def test_every_call_of_a_batch_is_answered_before_the_end(start: Start) -> None:
    gateway = start()
    stream = gateway.stream(gateway.token())
    assert stream.post([trial(number, "sleep", seconds=0.3) for number in range(20)]).status == 202
    gateway.tell(signal.SIGTERM)
    assert sorted(answer["id"] for answer in stream.message()) == list(range(20))
    assert stream.rest() == [GOODBYE]
    assert gateway.wait() == 0


def test_a_call_that_is_longer_than_the_time_to_drain_is_cut(start: Start) -> None:
    gateway = start({"timeouts": {"drain": 0.5}})
    stream = gateway.stream(gateway.token())
    running(stream, "long", 600)
    begun = time.monotonic()
    gateway.tell(signal.SIGTERM)
    assert stream.rest() == [GOODBYE]
    assert stream.ended
    stream.close()
    assert gateway.wait() == 0
    assert time.monotonic() - begun < 0.5 + 3
    assert "Traceback" not in gateway.log


def test_peers_that_do_not_read_or_do_not_finish_do_not_hold_up_the_end(start: Start) -> None:
    gateway = start({"timeouts": {"drain": 0.5}})
    token = gateway.token()
    headers = [("Authorization", f"Bearer {token}")]

    unread = gateway.stream(token)
    unread.connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    for number in range(5):
        assert unread.post(trial(number, "answer", size=3_000_000)).status == 202
    half_a_body = gateway.connect()
    half_a_body.send("POST", unread.endpoint, [*headers, ("Content-Length", "1000")])
    half_a_body.socket.sendall(b'{"jsonrpc"')
    half_a_head = gateway.connect()
    half_a_head.socket.sendall(b"GET /sse HTTP/1.1\r\n")
    idle = gateway.connect()
    assert idle.request("GET", "/healthz", []).status == 200
    address = ("127.0.0.1", gateway.port)
    with socket.create_connection(address), socket.create_connection(address) as half_a_handshake:
        half_a_handshake.sendall(b"\x16\x03\x01\x02\x00\x01\x00")
        good = gateway.stream(token)
        assert good.call("ping")["result"] == {}

        begun = time.monotonic()
        gateway.tell(signal.SIGTERM)
        assert good.rest() == [GOODBYE]
        assert good.ended
        assert gateway.wait() == 0
        took = time.monotonic() - begun
    print(f"with peers that do not read or do not finish: gone after {took:.2f} s")
    assert took < 0.5 + 1 + 1 + 3  # to drain, to write what is left, to close; and what a busy machine takes
    assert "Traceback" not in gateway.log
    assert "ERROR" not in gateway.log
    assert "killed" not in gateway.log


def test_a_gateway_that_is_just_being_started_again_ends_at_once(start: Start) -> None:
    gateway = start({"timeouts": {"drain": 60}})
    os.kill(gateway.gateway, signal.SIGKILL)
    assert eventually(lambda: "is started again" in gateway.log)
    begun = time.monotonic()
    gateway.tell(signal.SIGTERM)
    assert gateway.wait() == 0
    assert time.monotonic() - begun < 10


def test_the_port_is_free_after_the_end(start: Start) -> None:
    gateway = start()
    stream = gateway.stream(gateway.token())
    assert gateway.stop() == 0
    assert stream.endpoint
    again = start(port=gateway.port)
    assert again.port == gateway.port
