"""A client that does not read costs what its outbox may hold, and nobody else anything."""

from __future__ import annotations

from typing import Any

from tests.walk.client import Stream
from tests.walk.conftest import Start
from tests.walk.running import Running, eventually

RESULT = 100_000


def call(number: int, size: int = RESULT) -> dict[str, Any]:
    params = {"name": "trial/run", "arguments": {"do": "answer", "size": size}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def fill(stream: Stream, most: int) -> tuple[int, int]:
    """Posts calls and reads nothing: (how many were accepted, the status that ended it)."""
    for number in range(most):
        status = stream.post(call(number)).status
        if status != 202:
            return number, status
    return most, 202


def test_a_reader_that_does_not_keep_up_gets_busy_and_then_its_stream_is_closed(start: Start) -> None:
    gateway = start({"limits": {"rate": 0, "outbox": 500_000, "in_flight": 1000}, "timeouts": {"send": 2}})
    # The kernel takes little on the client's behalf, so that not reading is felt at once.
    slow = gateway.stream(gateway.token(), receive_buffer=16 * 1024)
    other = gateway.stream(gateway.token("bob"))
    accepted, status = fill(slow, 1000)
    assert status == 503
    assert accepted >= 5
    assert other.call("ping")["result"] == {}
    assert eventually(lambda: "closed: no byte taken for 2 s" in gateway.log)
    refused = slow.post(call(-1))
    assert (refused.status, refused.body) == (400, b"No active SSE session\n")
    assert other.tool("trial/run", do="answer")["content"][0]["text"] == "done"
    assert "Traceback" not in gateway.log


def test_a_reader_that_comes_back_in_time_gets_every_answer(gateway: Running, alice: str) -> None:
    stream = gateway.stream(alice)
    accepted = [number for number in range(60) if stream.post(call(number, 400_000)).status == 202]
    assert len(accepted) > 15
    answered: set[int] = set()
    while len(answered) < len(accepted):
        message = stream.message()
        if "result" in message:
            answered.add(message["id"])
        else:
            assert message["error"]["message"] == "Busy"
    assert answered == set(accepted)
