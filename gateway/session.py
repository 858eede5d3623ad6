"""One stream's life: the outbox it writes, the calls that run for it, their cancellation and its end."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator, Mapping
from enum import Enum
from typing import Any

from gateway.auth import Identity, standing
from gateway.config import Limits
from gateway.dispatch import Dispatch, Work
from gateway.jsonrpc import (
    REFUSED,
    Batch,
    Call,
    Fault,
    Message,
    Notification,
    RpcError,
    error_message,
    id_text,
    notification_message,
)

logger = logging.getLogger(__name__)

EVENT = b"event: message\ndata: "
END = b"\n\n"
PING = b": ping\n\n"

# A write of this size at most stands in the connection's buffer beside the outbox; larger frames go out in parts.
SLICE = 64 * 1024

# Refusals may still be told on a stream whose outbox is full, up to this many bytes more.
REFUSALS = 64 * 1024

# Bytes of arguments that the calls in flight of one session may hold together; the one that passes it is the last.
ARGUMENTS = 16 * 1024 * 1024


class Delivery(Enum):
    """What became of a POSTed message at its session."""

    ACCEPTED = "accepted"
    BUSY = "busy"
    GONE = "gone"


class Outbox(AsyncIterator[bytes]):
    """Frames on their way to one client, bounded in bytes; what is being written just now counts too."""

    __slots__ = ("_closed", "_frames", "_limit", "_room", "_sending", "_wake", "size")

    def __init__(self, limit: int) -> None:
        self.size = 0
        self._limit = limit
        self._frames: deque[bytes | memoryview] = deque()
        self._sending = 0
        self._wake: asyncio.Future[None] | None = None
        self._room: deque[asyncio.Future[None]] | None = None
        self._closed = False

    @property
    def full(self) -> bool:
        return self.size >= self._limit

    @property
    def idle(self) -> bool:
        return self.size == 0

    @property
    def closed(self) -> bool:
        return self._closed

    def put(self, frame: bytes) -> None:
        """Appends one whole frame; after `close` it is dropped. The bound is kept by those who ask `full` or wait
        for `room` before they begin the work that fills it."""
        if self._closed:
            return
        self._frames.append(frame)
        self.size += len(frame)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def close(self) -> None:
        """Ends the stream once what is in the outbox has been written."""
        self._closed = True
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def room(self) -> None:
        """Waits until the outbox is below its limit."""
        while self.size >= self._limit:
            waiter = asyncio.get_running_loop().create_future()
            if self._room is None:
                self._room = deque()
            self._room.append(waiter)
            await waiter

    def __aiter__(self) -> Outbox:
        return self

    async def __anext__(self) -> bytes:
        """The next bytes to write: many small frames at once, a large one in parts. That the caller comes back is
        the sign that the last ones were written."""
        self.size -= self._sending
        self._sending = 0
        if self._room and self.size < self._limit:
            for waiter in self._room:
                if not waiter.done():
                    waiter.set_result(None)
            self._room = None
        while not self._frames:
            if self._closed:
                raise StopAsyncIteration
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
            self._wake = None
        chunk = self._take()
        self._sending = len(chunk)
        return chunk

    def _take(self) -> bytes:
        first = self._frames.popleft()
        if len(first) > SLICE:
            view = memoryview(first)
            self._frames.appendleft(view[SLICE:])
            return bytes(view[:SLICE])
        if not self._frames:
            return bytes(first)
        parts, size = [first], len(first)
        while self._frames and size + len(self._frames[0]) <= SLICE:
            part = self._frames.popleft()
            parts.append(part)
            size += len(part)
        return b"".join(parts)


class Session:
    """State of one open stream. Made by `GET /sse`, which also ends it; POSTs reach it through the bus.

    `protocol` is the MCP version that `initialize` agreed on, None for a client that never asked.
    `identity` is by the freshest token that came; when that expires, the stream ends.
    """

    __slots__ = (
        "_calls",
        "_dispatch",
        "_limits",
        "_next_ping",
        "_ping",
        "_tasks",
        "id",
        "identity",
        "outbox",
        "protocol",
    )

    def __init__(self, identity: Identity, dispatch: Dispatch, limits: Limits, ping: float, now: float) -> None:
        self.id = secrets.token_urlsafe(32)  # 256 bits
        self.identity = identity
        self.protocol: str | None = None
        self.outbox = Outbox(limits.outbox)
        self._dispatch = dispatch
        self._limits = limits
        self._ping = ping
        self._next_ping = now + ping
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls: dict[asyncio.Task[bytes], Work] = {}

    @property
    def running(self) -> int:
        """Calls and batches that are accepted and not yet answered."""
        return len(self._calls) + len(self._tasks)

    def deliver(self, message: Message | Batch, identity: Identity) -> Delivery:
        """Takes in one POSTed body, by `identity` (the session's own, perhaps with a fresher token)."""
        if self.outbox.closed:  # it ended while the body came in
            return Delivery.GONE
        if identity.expires > self.identity.expires:
            self.identity = identity
        messages = message.messages if isinstance(message, Batch) else (message,)
        calls = [m for m in messages if isinstance(m, Call)]
        if calls and self._busy(calls):
            self.refuse(message, "Busy")
            return Delivery.BUSY
        if isinstance(message, Batch):
            self._start_batch(message.messages)
        else:
            self._start(message)
        return Delivery.ACCEPTED

    def refuse(self, message: Message | Batch, why: str) -> None:
        """Answers each call of a message that was not accepted: MCP clients never look at the POST's status."""
        messages = message.messages if isinstance(message, Batch) else (message,)
        refusals = [error_message(m.id, RpcError(REFUSED, why)) for m in messages if isinstance(m, Call)]
        if refusals and self.outbox.size < self._limits.outbox + REFUSALS:
            self._send(_array(refusals) if isinstance(message, Batch) else refusals[0])

    def has_room(self) -> bool:
        """Whether the client takes what it is sent: while it does not, no work is begun for it."""
        return not self.outbox.full

    async def room(self) -> None:
        """Waits until it has."""
        await self.outbox.room()

    def notify(self, method: str, params: bytes) -> None:
        """Sends a notification; it is only advice, so a stream that lags behind goes without."""
        if not self.outbox.full:
            self._send(notification_message(method, params))

    def tick(self, now: float, clock: float, users: Mapping[str, float]) -> None:
        """Called about once a second. `now` is monotonic, `clock` is Unix time, both in seconds; `users` may use
        tokens."""
        if self.outbox.closed:
            return
        if clock >= self.identity.expires:
            self.finish("the token has expired")
        elif standing(self.identity, users):
            self.finish("the user was removed")
        elif now >= self._next_ping:
            self._next_ping = now + self._ping
            if self.outbox.idle:  # a client that still has bytes to take needs no sign of life
                self.outbox.put(PING)

    def finish(self, why: str) -> None:
        """Ends the stream after what is in the outbox; a comment tells a person at curl why."""
        self.outbox.put(f": {why}\n\n".encode("ascii"))
        self.outbox.close()

    async def end(self) -> None:
        """The stream is gone: stops what runs for it. No task outlives its session."""
        self.outbox.close()
        tasks: list[asyncio.Task[Any]] = [*self._tasks, *self._calls]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _busy(self, calls: list[Call]) -> bool:
        if self.outbox.full:
            return True
        working = sum(call.method == "tools/call" for call in calls)
        if not working:
            return False
        return (
            # A batch larger than the limit is taken when nothing else runs: it could never come in otherwise.
            (len(self._calls) > 0 and len(self._calls) + working > self._limits.in_flight)
            or sum(len(work.request) for work in self._calls.values()) >= ARGUMENTS
            or self._dispatch.full(self.identity)
        )

    def _start(self, message: Message) -> None:
        if isinstance(message, Call):
            begun = self._dispatch.begin(message, self, 1)
            if isinstance(begun, bytes):
                self._send(begun)
            else:
                self._run(begun).add_done_callback(self._answered)
        elif isinstance(message, Fault):
            self._send(error_message(message.id, message.error))
        elif isinstance(message, Notification):
            self._notified(message)

    def _start_batch(self, messages: tuple[Message, ...]) -> None:
        working = sum(isinstance(m, Call) and m.method == "tools/call" for m in messages)
        answers: list[bytes | asyncio.Task[bytes]] = []
        for message in messages:
            if isinstance(message, Call):
                begun = self._dispatch.begin(message, self, working)
                answers.append(begun if isinstance(begun, bytes) else self._run(begun))
            elif isinstance(message, Fault):
                answers.append(error_message(message.id, message.error))
            elif isinstance(message, Notification):
                self._notified(message)
        if answers:
            task = asyncio.get_running_loop().create_task(self._finish_batch(answers))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _finish_batch(self, answers: list[bytes | asyncio.Task[bytes]]) -> None:
        tasks = [a for a in answers if isinstance(a, asyncio.Task)]
        if tasks:
            await asyncio.wait(tasks)
        finished = [a if isinstance(a, bytes) else None if a.cancelled() else a.result() for a in answers]
        if sent := [answer for answer in finished if answer is not None]:
            self._send(_array(sent))

    def _run(self, work: Work) -> asyncio.Task[bytes]:
        task = asyncio.get_running_loop().create_task(self._dispatch.carry_out(work, self))
        self._calls[task] = work
        task.add_done_callback(self._calls.pop)
        return task

    def _answered(self, task: asyncio.Task[bytes]) -> None:
        if not task.cancelled():
            self._send(task.result())

    def _notified(self, notification: Notification) -> None:
        """`notifications/cancelled` (MCP, "Cancellation") stops the work and its answer; all others need nothing."""
        if notification.method != "notifications/cancelled" or not isinstance(notification.params, dict):
            return
        asked = id_text(notification.params.get("requestId"))
        for task, work in list(self._calls.items()):
            if work.id == asked:
                task.cancel()

    def _send(self, message: bytes) -> None:
        self.outbox.put(EVENT + message + END)


def _array(messages: list[bytes]) -> bytes:
    return b"[" + b",".join(messages) + b"]"
