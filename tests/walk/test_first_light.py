"""The shape of the stream: its first bytes, its answers, its sign of life, its end."""

from __future__ import annotations

import json
import re

import pytest

from tests.walk.conftest import Start
from tests.walk.running import Running


def test_the_first_bytes_of_a_stream_are_the_endpoint_event(gateway: Running, alice: str) -> None:
    connection = gateway.connect()
    connection.send("GET", "/sse", [("Authorization", f"Bearer {alice}")])
    head = connection.read_until(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    size = int(connection.read_until(b"\r\n"), 16)
    first = connection.read(size)
    assert re.fullmatch(rb"event: endpoint\ndata: /message\?session_id=[A-Za-z0-9_-]{43}\n\n", first)
    connection.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-store"),
        ("x-accel-buffering", "no"),
        ("transfer-encoding", "chunked"),
    ],
)
def test_a_stream_has_the_headers_of_the_contract(gateway: Running, alice: str, name: str, value: str) -> None:
    assert dict(gateway.stream(alice).headers)[name] == value


def test_an_answer_is_one_event_with_one_line_of_ascii_json_in_the_order_of_the_contract(
    gateway: Running, alice: str
) -> None:
    stream = gateway.stream(alice)
    stream.post({"jsonrpc": "2.0", "id": "é\u2028", "method": "ping"})
    assert stream.frame() == b'event: message\ndata: {"jsonrpc":"2.0","id":"\\u00e9\\u2028","result":{}}\n\n'
    stream.post({"jsonrpc": "2.0", "id": 7, "method": "nosuch"})
    assert stream.frame() == (
        b"event: message\ndata: "
        b'{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"Method not found: nosuch"}}\n\n'
    )


def test_session_ids_are_never_used_twice(gateway: Running, alice: str) -> None:
    endpoints = {gateway.stream(alice).endpoint for _ in range(20)}
    assert len(endpoints) == 20


def test_an_idle_stream_gets_comments_as_signs_of_life(start: Start) -> None:
    gateway = start({"timeouts": {"ping": 0.2}})
    stream = gateway.stream(gateway.token())
    assert [stream.frame(), stream.frame(), stream.frame()] == [b": ping\n\n"] * 3


def test_pings_never_fall_into_a_long_event(start: Start) -> None:
    gateway = start({"timeouts": {"ping": 0.05}, "limits": {"rate": 0}})
    stream = gateway.stream(gateway.token())
    for number in range(10):
        stream.post(
            {
                "jsonrpc": "2.0",
                "id": number,
                "method": "tools/call",
                "params": {"name": "trial/run", "arguments": {"do": "answer", "size": 3_000_000}},
            }
        )
    sizes = [len(stream.message()["result"]["content"][0]["text"]) for _ in range(10)]
    assert sizes == [3_000_000] * 10


@pytest.mark.parametrize("spelling", ["/sse", "/sse/", "//sse", "/sse//", "//sse//"])
def test_every_spelling_of_the_stream_s_path_opens_one(gateway: Running, alice: str, spelling: str) -> None:
    connection = gateway.connect()
    connection.send("GET", spelling, [("Authorization", f"Bearer {alice}")])
    assert connection.read_head()[0] == 200
    connection.close()


@pytest.mark.parametrize("spelling", ["/message", "/message/", "//message"])
def test_every_spelling_of_the_endpoint_s_path_takes_a_post(gateway: Running, alice: str, spelling: str) -> None:
    stream = gateway.stream(alice)
    stream.endpoint = stream.endpoint.replace("/message", spelling)
    assert stream.call("ping")["result"] == {}


@pytest.mark.parametrize(("path", "body"), [("/healthz", b"ok\n"), ("/readyz", b"ok\n"), ("/readyz/", b"ok\n")])
def test_health_needs_no_token(gateway: Running, path: str, body: bytes) -> None:
    response = gateway.connect().request("GET", path, [])
    assert (response.status, response.body) == (200, body)


@pytest.mark.parametrize("path", ["/", "/nosuch", "/.well-known/oauth-protected-resource", "/sse/x", "/messages"])
def test_an_unknown_path_is_404(gateway: Running, path: str) -> None:
    response = gateway.connect().request("GET", path, [])
    assert (response.status, response.body) == (404, b"Not Found\n")


def test_the_ready_line_names_certificate_and_fingerprint(gateway: Running) -> None:
    shown = gateway.command("cert", "show")
    fingerprint = re.search(r"sha256:[0-9a-f]{64}", shown)
    assert fingerprint is not None
    assert gateway.ready == (
        f"ready https://127.0.0.1:{gateway.port} cert={gateway.certificate} fingerprint={fingerprint[0]}\n"
    )


def test_post_right_behind_the_endpoint_event_is_never_lost(gateway: Running, alice: str) -> None:
    """1,000 times a POST that leaves as soon as the endpoint is known, on a connection that is open already."""
    posting = gateway.connect()
    headers = [("Authorization", f"Bearer {alice}")]
    answered = 0
    for number in range(1000):
        reading = gateway.connect()
        reading.send("GET", "/sse", headers)
        reading.read_until(b"data: ")
        endpoint = reading.read_until(b"\n").decode().strip()
        body = json.dumps({"jsonrpc": "2.0", "id": number, "method": "ping"}).encode()
        assert posting.request("POST", endpoint, headers, body).status == 202
        reading.read_until(b"data: ")
        assert json.loads(reading.read_until(b"\n")) == {"jsonrpc": "2.0", "id": number, "result": {}}
        answered += 1
        reading.close()
    assert answered == 1000
