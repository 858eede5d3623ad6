"""The HTTP edge: `GET /sse` holds a stream, `POST /message` reads a body; `/healthz` and `/readyz` tell their state.

Each is an ASGI application; the checks stand in the order of the wire contract, sections 3 and 4.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import parse_qsl

from sse_starlette.sse import SendTimeoutError
from starlette.types import Message, Receive, Scope, Send

from gateway.auth import Authenticator, Identity, Reason, Refusal
from gateway.bus import LocalBus
from gateway.config import Config
from gateway.dispatch import Dispatch
from gateway.jsonrpc import Batch, Malformed, decode
from gateway.limits import Rate, Streams
from gateway.session import Delivery, Session
from gateway.stream import Stream
from gateway.workers import Workers

logger = logging.getLogger(__name__)

# A larger body is parsed in a thread, so that the streams of others go on meanwhile.
LARGE: Final = 64 * 1024
# Seconds that a refused client is asked to wait where nothing better is known.
RETRY_AFTER: Final = 1


class Edge:
    """What both endpoints share: who comes in, and whether anyone may."""

    def __init__(self, config: Config, authenticator: Authenticator, workers: Workers, dispatch: Dispatch) -> None:
        self.config = config
        self.dispatch = dispatch
        self.bus = LocalBus()
        self.rate = Rate(config.limits.rate, config.limits.burst)
        self.streams = Streams(config.limits.sessions, config.limits.sessions_per_identity)
        self.draining = False
        self._authenticator = authenticator
        self._workers = workers

    async def admit(self, scope: Scope, send: Send, method: str) -> Identity | None:
        """Who asks, by the one method of the path; None when a refusal has been sent."""
        if scope["method"] != method:
            await _text(send, 405, "Method Not Allowed", (b"allow", method.encode("ascii")))
            return None
        try:
            return await self._identity(scope)
        except Refusal as refusal:
            logger.info("%s %s refused: %s", scope["method"], scope["path"], refusal)
            challenge = (b"www-authenticate", refusal.challenge.encode("ascii"))
            await _text(send, 401, "Unauthorized", challenge)
            return None

    async def _identity(self, scope: Scope) -> Identity:
        """Raises Refusal. A user who was added a moment ago is known without a restart."""
        try:
            return self._authenticator.authenticate(scope["headers"])
        except Refusal as refusal:
            if refusal.reason is not Reason.UNKNOWN_USER:
                raise
        await self._workers.refresh_users()
        return self._authenticator.authenticate(scope["headers"])

    @property
    def users(self) -> Mapping[str, float]:
        return self._workers.users


class Streaming:
    """`GET /sse`: the endpoint event, then whatever the session's outbox holds, until client or gateway leaves."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        edge = self._edge
        identity = await edge.admit(scope, send, "GET")
        if identity is None:
            return
        if edge.draining or edge.streams.full():
            await _text(send, 503, "Busy", _retry_after(RETRY_AFTER))
            return
        if edge.streams.full_for(identity):
            await _text(send, 429, "Too many sessions", _retry_after(RETRY_AFTER))
            return
        timeouts = edge.config.timeouts
        session = Session(identity, edge.dispatch, edge.config.limits, timeouts.ping, time.monotonic())
        # The session can be found before the client learns its id: a POST may follow in the same millisecond.
        session.outbox.put(
            f"event: endpoint\ndata: {scope.get('root_path', '')}/message?session_id={session.id}\n\n".encode("ascii")
        )
        scope["extensions"]["ssegate.streaming"] = True
        edge.streams.add(identity)
        logger.info("stream of %s opened, %d open", identity.subject, edge.streams.total)
        try:
            with edge.bus.holding(session):
                await Stream(session.outbox, timeouts.send)(scope, receive, send)
        except SendTimeoutError:
            logger.warning("stream of %s closed: no byte taken for %g s", identity.subject, timeouts.send)
            scope["extensions"]["ssegate.abort"]()
            await _disconnected(receive)
        finally:
            edge.streams.remove(identity)
            await session.end()
            logger.info("stream of %s ended, %d open", identity.subject, edge.streams.total)


class Messages:
    """`POST /message?session_id=…`: reads one JSON-RPC body and hands it to the session that holds the stream."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        edge = self._edge
        identity = await edge.admit(scope, send, "POST")
        if identity is None:
            return
        session_id = _session_id(scope["query_string"])
        if not session_id:
            await _text(send, 400, "Missing session_id in query parameters")
            return
        inbox = edge.bus.find(session_id)
        if inbox is not None and not identity.same_person(inbox.identity):
            logger.warning("security: %s posted to a session of %s", identity.subject, inbox.identity.subject)
            inbox = None
        if inbox is None:
            await _text(send, 400, "No active SSE session")
            return
        try:
            body = await _body(scope, receive, edge.config.limits.body)
        except _TooLarge:
            await _text(send, 413, "Request body too large")
            return
        except _Gone:
            return
        try:
            message = decode(body) if len(body) <= LARGE else await asyncio.to_thread(decode, body)
        except Malformed as error:
            logger.info("body of %s refused: %s", identity.subject, error)
            await _text(send, 400, "Invalid JSON-RPC")
            return
        if wait := edge.rate.take(identity, len(message.messages) if isinstance(message, Batch) else 1):
            inbox.refuse(message, "Rate limit exceeded")
            await _text(send, 429, "Rate limit exceeded", _retry_after(wait))
            return
        if edge.draining:
            inbox.refuse(message, "Busy")
            delivery = Delivery.BUSY
        else:
            delivery = inbox.deliver(message, identity)
        match delivery:
            case Delivery.ACCEPTED:
                await send(_ACCEPTED)
                await send(_EMPTY)
            case Delivery.BUSY:
                await _text(send, 503, "Busy", _retry_after(RETRY_AFTER))
            case Delivery.GONE:
                await _text(send, 400, "No active SSE session")


class State:
    """`/healthz`, `/readyz`: `ok` or `Busy`, to anyone."""

    def __init__(self, good: Callable[[], bool]) -> None:
        self._good = good

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            await _text(send, 405, "Method Not Allowed", (b"allow", b"GET, HEAD"))
        elif self._good():
            await _text(send, 200, "ok")
        else:
            await _text(send, 503, "Busy", _retry_after(RETRY_AFTER))


async def not_found(_scope: Scope, _receive: Receive, send: Send) -> None:
    await _text(send, 404, "Not Found")


class _TooLarge(Exception):
    """The body is over the limit."""


class _Gone(Exception):
    """The client left before its body was whole."""


async def _body(scope: Scope, receive: Receive, limit: int) -> bytes:
    for name, value in scope["headers"]:
        if name == b"content-length" and int(value) > limit:
            raise _TooLarge
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _TooLarge
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _session_id(query: bytes) -> str:
    if plain := _PLAIN.fullmatch(query):  # as the endpoint event has it; the general way costs 20 us more
        return plain[1].decode("ascii")
    return next((value for name, value in parse_qsl(query.decode("latin-1")) if name == "session_id"), "")


_PLAIN: Final = re.compile(rb"session_id=([A-Za-z0-9_-]+)")

_ACCEPTED: Final[Message] = {
    "type": "http.response.start",
    "status": 202,
    "headers": [(b"content-length", b"0")],
}
_EMPTY: Final[Message] = {"type": "http.response.body", "body": b""}


def _retry_after(seconds: int) -> tuple[bytes, bytes]:
    return b"retry-after", str(seconds).encode("ascii")


async def _text(send: Send, status: int, text: str, *headers: tuple[bytes, bytes]) -> None:
    body = f"{text}\n".encode("ascii")
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", b"text/plain; charset=utf-8"),
                (b"content-length", str(len(body)).encode("ascii")),
                (b"cache-control", b"no-store"),
                *headers,
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})
