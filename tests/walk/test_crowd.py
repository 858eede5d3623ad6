"""Many at once, and anything at all: nothing is lost, nothing crosses, nothing breaks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import ssl
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.walk.client import Stream
from tests.walk.conftest import Start
from tests.walk.running import Running

STREAMS = 200
CALLS = 50


class Client:
    """One stream and one posting connection, on an event loop of many."""

    def __init__(self, port: int, context: ssl.SSLContext, token: str, number: int) -> None:
        self.port, self.context, self.number = port, context, number
        self.head = f"Host: localhost\r\nAuthorization: Bearer {token}\r\n"

    async def run(self) -> tuple[list[str], list[str]]:
        """(accepted ids, answered ids), each answer checked to be the one to its own call."""
        reader, writer = await self._connect()
        writer.write(f"GET /sse HTTP/1.1\r\n{self.head}\r\n".encode())
        await reader.readuntil(b"data: ")
        endpoint = (await reader.readuntil(b"\n")).decode().strip()
        accepted: list[str] = []
        answers = asyncio.create_task(self._answers(reader))
        await self._post(endpoint, accepted)
        answered = await answers
        await _close(writer)
        return accepted, answered

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.context, server_hostname="localhost")

    async def _post(self, endpoint: str, accepted: list[str]) -> None:
        reader, writer = await self._connect()
        for number in range(CALLS):
            identifier = f"{self.number}-{number}"
            body = json.dumps(self._call(identifier, number)).encode()
            writer.write(f"POST {endpoint} HTTP/1.1\r\n{self.head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 202 "), head
            accepted.append(identifier)
        await _close(writer)

    def _call(self, identifier: str, number: int) -> dict[str, Any]:
        if number % 2:
            return {"jsonrpc": "2.0", "id": identifier, "method": "ping"}
        arguments = {"do": "answer", "path": identifier}
        params = {"name": "trial/run", "arguments": arguments}
        return {"jsonrpc": "2.0", "id": identifier, "method": "tools/call", "params": params}

    async def _answers(self, reader: asyncio.StreamReader) -> list[str]:
        answered: list[str] = []
        while len(answered) < CALLS:
            await reader.readuntil(b"data: ")
            answer = json.loads(await reader.readuntil(b"\n"))
            result = answer["result"]
            if result:
                assert result["content"][0]["text"] == answer["id"]
            answered.append(answer["id"])
        return answered


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def test_200_streams_of_one_token_get_each_its_own_10000_answers(start: Start) -> None:
    gateway = start({"limits": {"rate": 0, "sessions_per_identity": STREAMS}})
    token = gateway.token()
    context = ssl.create_default_context(cafile=gateway.certificate)

    async def crowd() -> list[tuple[list[str], list[str]]]:
        async with asyncio.timeout(100):
            return await asyncio.gather(
                *(Client(gateway.port, context, token, number).run() for number in range(STREAMS))
            )

    outcomes = asyncio.run(crowd())
    assert sum(len(accepted) for accepted, _ in outcomes) == STREAMS * CALLS
    for accepted, answered in outcomes:
        assert sorted(answered) == sorted(accepted)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.sampled_from(["2.0", "1.0", 2]),
        "id": JSON,
        "method": st.sampled_from(["ping", "tools/list", "tools/call", "initialize", "x"]) | JSON,
        "params": JSON
        | st.fixed_dictionaries(
            {"name": st.sampled_from(["list_dir", "files/list", "read_files_batch", "read_tree"]) | JSON},
            optional={"arguments": JSON, "_meta": JSON},
        ),
    },
)


def post_and_ask(gateway: Running, token: str, body: bytes) -> None:
    stream = gateway.stream(token)
    status = stream.post(body).status
    assert status in (202, 400, 413)
    assert stream.post({"jsonrpc": "2.0", "id": "alive", "method": "ping"}).status == 202
    while True:
        message: Any = stream.message()
        if isinstance(message, dict) and message.get("id") == "alive":
            break
    stream.close()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.binary(max_size=300))
def test_any_bytes_posted_give_202_or_a_documented_4xx_and_never_a_dead_stream(
    gateway: Running, alice: str, body: bytes
) -> None:
    post_and_ask(gateway, alice, body)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(message=MESSAGE | st.lists(MESSAGE, max_size=4))
def test_any_message_posted_gives_202_or_a_documented_4xx_and_never_a_dead_stream(
    gateway: Running, alice: str, message: Any
) -> None:
    post_and_ask(gateway, alice, json.dumps(message).encode())


def test_a_message_with_any_byte_changed_gives_202_or_a_documented_4xx(gateway: Running, alice: str) -> None:
    stream: Stream = gateway.stream(alice)
    whole = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_dir","arguments":{"path":"/etc"}}}'
    chance = random.Random(9091)  # noqa: S311 - a sample, the same each time
    statuses = set()
    for place in range(len(whole)):
        body = bytearray(whole)
        body[place] = chance.randrange(256)
        statuses.add(stream.post(bytes(body)).status)
    assert statuses <= {202, 400}
    assert len(statuses) == 2


def test_the_log_of_all_that_holds_no_traceback(gateway: Running) -> None:
    assert "Traceback" not in gateway.log
