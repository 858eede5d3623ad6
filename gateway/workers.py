"""The gateway's side of the worker pools: a free worker for a call, a new one for one that was lost.

A worker belongs to an OS account and runs one call at a time. Timeout, cancel and client gone all arrive here as a
cancelled `run`: the worker is killed, for nothing else stops a read of a hung file, and another takes its place.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol, cast

from gateway import control
from gateway.auth import Identity
from tools.worker import ANSWER, FRAME, PROGRESS, REQUEST

logger = logging.getLogger(__name__)

# As many as can compute at once, and two more so that those that wait for a disk leave no core idle.
SIZE: Final = (os.cpu_count() or 1) + 2
# Beyond SIZE only where calls wait and hung files are in the way: so many can be borne at once.
MOST: Final = 32
# They are when no call ends for STALLED seconds, or for each one that has run for HELD seconds. Calls that merely
# compute take turns at ending sooner: more workers would not make them faster.
STALLED: Final = 0.1
HELD: Final = 2.0
# Calls, and bytes of their arguments, that wait for a worker; past either a POST is answered `503 Busy`.
QUEUE: Final = 10_000
QUEUE_BYTES: Final = 256 * 1024 * 1024
# After the supervisor could not start a worker, seconds until it is asked again.
RETRY: Final = 1.0
# Seconds within which a gateway that starts must have its first worker.
START: Final = 10.0


class WorkerLost(Exception):
    """The worker ended before it answered, and so did the one the call was repeated on."""


class ToolFault(Exception):
    """The tool has a bug; `str()` is its traceback."""


class Caller(Protocol):
    """For whom a call runs: a worker is only taken for one who takes what it is sent."""

    identity: Identity

    def has_room(self) -> bool:
        """Whether the client takes what it is sent."""

    async def room(self) -> None:
        """Waits until it does."""


class _Died(Exception):
    """The worker's socket closed before the answer came."""


class Worker(asyncio.Protocol):
    """One worker process: a request goes out, progress and one answer come in (frames: `tools/worker.py`)."""

    def __init__(self, number: int, lost: Callable[[Worker], None]) -> None:
        self.number = number
        self.busy_since = 0.0
        self._lost = lost
        self._buffer = bytearray()
        self._answer: asyncio.Future[bytes] | None = None
        self._progress: Callable[[bytes], None] | None = None
        self._transport: asyncio.Transport
        self._gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def call(self, request: bytes, progress: Callable[[bytes], None]) -> asyncio.Future[bytes]:
        """Raises _Died, also in the future, and there ToolFault."""
        if self._gone:
            raise _Died
        self._answer = asyncio.get_running_loop().create_future()
        self._progress = progress
        self._transport.write(REQUEST.pack(len(request)) + request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= FRAME.size:
            kind, size = FRAME.unpack_from(self._buffer)
            end = FRAME.size + size
            if len(self._buffer) < end:
                return
            payload = bytes(memoryview(self._buffer)[FRAME.size : end])
            del self._buffer[:end]
            self._frame(kind, payload)

    def _frame(self, kind: bytes, payload: bytes) -> None:
        if kind == PROGRESS:
            if self._progress is not None:
                self._progress(payload)
            return
        answer, self._answer, self._progress = self._answer, None, None
        if answer is None or answer.done():
            return
        if kind == ANSWER:
            answer.set_result(payload)
        else:
            answer.set_exception(ToolFault(payload.decode("utf-8")))

    def connection_lost(self, _error: Exception | None) -> None:
        self._gone = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(_Died())
        self._lost(self)

    def close(self) -> None:
        """An idle worker ends when its socket does."""
        self._transport.abort()


class Pool:
    """The workers of one OS account, and the calls that wait for one: each identity in its turn, so that one with
    many calls does not hold up another's few."""

    def __init__(self, ask: Callable[[], None], kill: Callable[[int], None]) -> None:
        self._ask = ask
        self._kill = kill
        self._idle: list[Worker] = []
        self._busy: set[Worker] = set()
        self._asked = 0
        # Turns are dictionary keys, so that one of thousands can leave the line without a search.
        self._waiting: OrderedDict[str, OrderedDict[asyncio.Future[Worker], None]] = OrderedDict()
        self._queued = 0
        self._queued_bytes = 0
        self._relief: asyncio.TimerHandle | None = None
        self._last_end = 0.0
        self._closed = False
        self.first = asyncio.Event()

    @property
    def full(self) -> bool:
        return self._queued >= QUEUE or self._queued_bytes >= QUEUE_BYTES

    @property
    def size(self) -> int:
        return len(self._idle) + len(self._busy) + self._asked

    def fill(self) -> None:
        """Asks for workers up to SIZE."""
        while not self._closed and self.size < SIZE:
            self._more()

    async def run(self, request: bytes, caller: Caller, progress: Callable[[bytes], None], again: bool) -> bytes:
        """The answer's bytes. `again` takes no idle worker: what ended the first may have ended all of them, and it
        shows only when their sockets close. Raises _Died and ToolFault."""
        if again:
            self._more()
        while True:
            idle = self._idle and not again
            worker = self._idle.pop() if idle else await self._turn(caller.identity.subject, len(request))
            if caller.has_room():
                break
            # Asked now, not when the call came in: 64 calls may have come in before the first one's answer.
            self._offer(worker)
            await caller.room()
        self._busy.add(worker)
        worker.busy_since = time.monotonic()
        try:
            answer = await worker.call(request, progress)
        except asyncio.CancelledError:
            self._stop(worker)
            raise
        except ToolFault:
            self._release(worker)
            raise
        except _Died:
            self._busy.discard(worker)
            self.fill()
            raise
        self._release(worker)
        return answer

    def add(self, worker: Worker) -> None:
        """A worker that was asked for is here."""
        self._asked -= 1
        self.first.set()
        self._offer(worker)

    def refused(self) -> None:
        """A worker that was asked for could not be started."""
        self._asked -= 1
        asyncio.get_running_loop().call_later(RETRY, self.fill)

    def lost(self, worker: Worker) -> None:
        """The worker's socket closed."""
        self._busy.discard(worker)
        if worker in self._idle:
            self._idle.remove(worker)
        self.fill()

    def close(self) -> None:
        self._closed = True
        for worker in [*self._idle, *self._busy]:
            worker.close()

    async def _turn(self, subject: str, size: int) -> Worker:
        turn: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(subject, OrderedDict())[turn] = None
        self._queued += 1
        self._queued_bytes += size
        self._watch()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # a worker came in the same moment
                self._offer(turn.result())
            else:
                self._leave(subject, turn)
            raise
        finally:
            self._queued_bytes -= size

    def _leave(self, subject: str, turn: asyncio.Future[Worker]) -> None:
        """Gives a place in the queue back at once: it may be long until a worker comes free and passes it over."""
        turns = self._waiting.get(subject)
        if turns is not None and turn in turns:
            del turns[turn]
            self._queued -= 1
            if not turns:
                del self._waiting[subject]

    def _release(self, worker: Worker) -> None:
        self._last_end = time.monotonic()
        self._busy.discard(worker)
        self._offer(worker)

    def _offer(self, worker: Worker) -> None:
        """Gives a free worker to whoever is next, or keeps it: SIZE beside those that are held up, and always one."""
        for turn in self._turns():
            if not turn.done():
                turn.set_result(worker)
                return
        if self._idle and self._quick() >= SIZE:
            worker.close()
        else:
            self._idle.append(worker)

    def _quick(self) -> int:
        """How many workers no call holds up."""
        held_since = time.monotonic() - HELD
        return self.size - sum(worker.busy_since < held_since for worker in self._busy)

    def _turns(self) -> Iterator[asyncio.Future[Worker]]:
        while self._waiting:
            subject, turns = self._waiting.popitem(last=False)
            turn, _ = turns.popitem(last=False)
            if turns:
                self._waiting[subject] = turns  # to the end of the line
            self._queued -= 1
            yield turn

    def _stop(self, worker: Worker) -> None:
        self._busy.discard(worker)
        self._kill(worker.number)
        worker.close()
        self.fill()

    def _watch(self) -> None:
        """While calls wait, looks every STALLED seconds whether one more worker is needed."""
        if self._relief is None and not self._closed:
            self._relief = asyncio.get_running_loop().call_later(STALLED, self._relieve)

    def _relieve(self) -> None:
        self._relief = None
        if not self._queued:
            return
        stalled = time.monotonic() - self._last_end > STALLED
        if (stalled or self._quick() < SIZE) and not self._asked and self.size < MOST:
            self._more()
        self._watch()

    def _more(self) -> None:
        self._asked += 1
        self._ask()


class Workers:
    """The pools of all accounts, over the control socket to the supervisor that starts and kills.

    `users` may use tokens (as `auth.standing` takes them); the supervisor tells when they change. `account_of` says as
    which OS account an identity's calls run.
    """

    def __init__(self, end: socket.socket, users: Mapping[str, float], account_of: Callable[[Identity], str]) -> None:
        self.users = users
        self._end = end
        self._account_of = account_of
        self._pools: dict[str, Pool] = {}
        self._unsent: deque[dict[str, Any]] = deque()
        self._news: list[asyncio.Future[None]] = []
        self._connecting: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._end.setblocking(False)
        asyncio.get_running_loop().add_reader(self._end.fileno(), self._receive)

    def close(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._end.fileno())
        loop.remove_writer(self._end.fileno())
        for pool in self._pools.values():
            pool.close()

    def ready(self) -> None:
        """Tells the supervisor that this gateway serves."""
        self._send({"op": "ready"})

    async def warm(self, account: str) -> None:
        """Has the account's workers started before the first call; returns when one is there. Raises TimeoutError."""
        pool = self._pool(account)
        pool.fill()
        async with asyncio.timeout(START):
            await pool.first.wait()

    def full(self, identity: Identity) -> bool:
        """Whether the queue takes no more calls of this identity."""
        return self._pool(self._account_of(identity)).full

    async def run(self, request: bytes, caller: Caller, progress: Callable[[bytes], None]) -> bytes:
        """The finished bytes of one call's result. All tools only read, so one whose worker died is repeated once.
        Cancelled: the work stops. Raises WorkerLost and ToolFault."""
        pool = self._pool(self._account_of(caller.identity))
        for again in (False, True):
            try:
                return await pool.run(request, caller, progress, again)
            except _Died:
                logger.warning("a worker ended in the middle of a call of %s", caller.identity.subject)
        raise WorkerLost

    async def refresh_users(self) -> None:
        """Has `users` read again: for a token that is good but whose user is not known yet."""
        if not self._news:
            self._send({"op": "users"})
        news = asyncio.get_running_loop().create_future()
        self._news.append(news)
        await news

    def _pool(self, account: str) -> Pool:
        pool = self._pools.get(account)
        if pool is None:
            pool = self._pools[account] = Pool(
                lambda: self._send({"op": "spawn", "account": account}),
                lambda number: self._send({"op": "kill", "number": number}),
            )
        return pool

    def _receive(self) -> None:
        try:
            received = control.receive(self._end)
        except BlockingIOError:
            return
        if received is None:  # the supervisor is gone
            os._exit(1)
        operation, descriptor = received
        match operation["op"], descriptor:
            case "worker", int():
                task = asyncio.get_running_loop().create_task(
                    self._connect(operation["account"], operation["number"], descriptor)
                )
                self._connecting.add(task)
                task.add_done_callback(self._connecting.discard)
            case "no_worker", None:
                logger.error("no worker could be started for %s: %s", operation["account"], operation["why"])
                self._pool(operation["account"]).refused()
            case "worker", None:  # this process had no descriptor left for it
                logger.error("a worker was lost: the gateway is out of descriptors")
                self._send({"op": "kill", "number": operation["number"]})
                self._pool(operation["account"]).refused()
            case "users", None:
                logger.error("the users were not received: the gateway is out of descriptors")
                asyncio.get_running_loop().call_later(RETRY, self._send, {"op": "users"})
            case "users", int():
                self.users = control.users_from_file(descriptor)
                for news in self._news:
                    if not news.done():
                        news.set_result(None)
                self._news.clear()
            case _:
                logger.critical("the supervisor sent an unknown operation")
                os._exit(1)

    async def _connect(self, account: str, number: int, descriptor: int) -> None:
        pool = self._pool(account)
        connection = socket.socket(fileno=descriptor)
        connection.setblocking(False)
        _, worker = await asyncio.get_running_loop().create_unix_connection(
            lambda: Worker(number, pool.lost), sock=connection
        )
        pool.add(worker)

    def _send(self, operation: dict[str, Any]) -> None:
        self._unsent.append(operation)
        self._flush()

    def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        while self._unsent:
            try:
                control.send(self._end, self._unsent[0])
            except BlockingIOError:
                loop.add_writer(self._end.fileno(), self._flush)
                return
            except OSError:  # the supervisor is gone; the reader ends this process
                self._unsent.clear()
                return
            self._unsent.popleft()
        loop.remove_writer(self._end.fileno())
