"""uvicorn as this gateway runs it: our sockets and TLS context, our end at SIGTERM, and a way to drop a connection."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import signal
import socket
import ssl
from collections.abc import Callable
from types import FrameType
from typing import Final

import uvicorn
import uvloop
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gateway.app import Gateway

# Connections that are still open this many seconds after the last stream ended are cut.
LAST_WORD: Final = 1

# Imported by libraries at first use, when the interpreter's files may be out of reach already.
LATE_IMPORTS: Final = ("anyio._backends._asyncio", "encodings.idna", "uvicorn.lifespan.on", "uvicorn.loops.uvloop")


class Protocol(HttpToolsProtocol):
    def data_received(self, data: bytes) -> None:
        # A request behind a stream would have its turn when the stream ends, and uvicorn stops reading until then: it
        # would not see the client leave.
        cycle: RequestResponseCycle | None = self.cycle  # None until the first request, whatever its annotation says
        if cycle is not None and not cycle.response_complete and "ssegate.streaming" in cycle.scope["extensions"]:
            self.transport.abort()
            return
        super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        # close() would wait for a peer that does not read; an ASGI application has no other way to the transport.
        self.scope["extensions"] = {"ssegate.abort": self.transport.abort}  # type: ignore[dict-item]  # our own extension


class Server(uvicorn.Server):
    """Serves `gateway` on bound sockets until SIGTERM, then drains it."""

    def __init__(self, gateway: Gateway, context: ssl.SSLContext, on_ready: Callable[[], None]) -> None:
        app: ASGIApp = gateway.app
        config = uvicorn.Config(
            app,
            http=Protocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            # Comes after our own cut: tasks that uvicorn cancels are errors with tracebacks in the log.
            timeout_graceful_shutdown=LAST_WORD + 1,
            ssl_context_factory=lambda _config, _default: context,
        )
        for name in LATE_IMPORTS:
            importlib.import_module(name)
        config.load()
        super().__init__(config)
        self._gateway = gateway
        self._on_ready = on_ready
        self._loop: asyncio.AbstractEventLoop
        self._draining: asyncio.Task[None] | None = None

    def run_on(self, listeners: list[socket.socket]) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self.serve(sockets=listeners))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's signature
        # Ctrl-C reaches every process of the terminal; the supervisor turns it into SIGTERM for this one.
        if sig == signal.SIGTERM:
            self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        if self._draining is None:
            self._draining = self._loop.create_task(self._end())

    async def _end(self) -> None:
        await self._gateway.drain()
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop.call_later(LAST_WORD, self._cut)
        await super().shutdown(sockets)
        self._cut()

    def _cut(self) -> None:
        for connection in list(self.server_state.connections):
            with contextlib.suppress(AttributeError):  # a connection that never got its transport
                connection.transport.abort()
