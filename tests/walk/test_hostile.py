"""What a hostile client tried once, and must not get away with."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.walk.conftest import Start
from tests.walk.running import Running, alive, eventually, status


def ping(number: int = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": "ping"}


def test_bytes_behind_a_stream_s_request_end_it_instead_of_making_it_immortal(gateway: Running, alice: str) -> None:
    stream = gateway.stream(alice)
    assert stream.call("ping")["result"] == {}
    stream.connection.send("GET", "/healthz", [])
    stream.connection.close()
    assert eventually(lambda: stream.post(ping()).status == 400)


@pytest.mark.parametrize("bad", ["/a\n", "/a\x1b[31m", "/a\t\x7f\u2028"])
@pytest.mark.parametrize(("tool", "argument"), [("list_dir", "path"), ("files/list", "path"), ("read_tree", "rev")])
def test_control_characters_in_an_argument_are_the_tool_s_refusal(
    gateway: Running, alice: str, tool: str, argument: str, bad: str
) -> None:
    result = gateway.stream(alice).tool(tool, **{argument: bad})
    assert result["isError"] is True
    assert all(character.isprintable() for character in result["content"][0]["text"])


def test_a_client_that_asks_for_much_and_reads_nothing_costs_its_outbox_and_not_all_it_asked_for(start: Start) -> None:
    gateway = start({"limits": {"rate": 0, "in_flight": 64, "outbox": 1_000_000}})
    stream = gateway.stream(gateway.token(), receive_buffer=16 * 1024)
    before = int(status(gateway.gateway)["VmRSS"].split()[0])
    params = {"name": "trial/run", "arguments": {"do": "answer", "size": 5_000_000}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    accepted = [stream.post(body).status for _ in range(64)].count(202)
    assert accepted >= 4
    other = gateway.stream(gateway.token("bob"))
    for _ in range(20):
        assert other.tool("trial/run", do="answer")["content"][0]["text"] == "done"
    grown = int(status(gateway.gateway)["VmRSS"].split()[0]) - before
    assert grown < 150_000, "kilobytes; the 64 answers would be 320,000 and copies of them"


def test_a_batch_larger_than_the_limit_in_flight_is_taken_when_nothing_else_runs(start: Start) -> None:
    gateway = start({"limits": {"rate": 0, "in_flight": 2}})
    stream = gateway.stream(gateway.token())
    params = {"name": "list_dir", "arguments": {"path": "/etc"}}
    batch = [{"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params} for number in range(100)]
    assert stream.post(batch).status == 202
    assert [answer["id"] for answer in stream.message()] == list(range(100))


def test_words_of_the_caller_are_repeated_in_part_only(gateway: Running, alice: str) -> None:
    stream = gateway.stream(alice)
    long = "x" * 1_000_000
    assert len(stream.call(long)["error"]["message"]) < 300
    assert len(stream.call("tools/call", {"name": long})["error"]["message"]) < 300


@pytest.mark.parametrize("content", ['"\\ud800": 1', "users: {a: {tokens: 7}}", "[" * 200, "\0"])
def test_a_users_file_that_is_garbage_changes_nothing(start: Start, content: str) -> None:
    gateway = start()
    stream = gateway.stream(gateway.token())
    draft = gateway.directory / "draft"
    draft.write_text(content)
    draft.replace(gateway.directory / "users.yaml")
    assert eventually(lambda: "the users known before stay in force" in gateway.log)
    assert stream.call("ping")["result"] == {}
    assert alive(gateway.process.pid)


def test_a_users_file_that_is_a_fifo_is_not_waited_for(start: Start) -> None:
    gateway = start()
    stream = gateway.stream(gateway.token())
    os.mkfifo(gateway.directory / "draft")
    (gateway.directory / "draft").replace(gateway.directory / "users.yaml")
    assert eventually(lambda: "not a regular file" in gateway.log)
    assert stream.call("ping")["result"] == {}
    assert gateway.stop() == 0
