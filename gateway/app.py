"""The table of contents: routes, middleware, lifespan; all wiring of the gateway process is here."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from sse_starlette.sse import AppStatus
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.auth import Authenticator
from gateway.config import Config
from gateway.dispatch import Dispatch
from gateway.endpoints import Edge, Messages, State, Streaming, not_found
from gateway.workers import Workers
from tools import Tool

logger = logging.getLogger(__name__)

# Seconds that ended streams have to write what is left.
FAREWELL: Final = 1.0
# Seconds between two looks at all sessions, at least, however short the pings are set.
SHORTEST_TICK: Final = 0.02


class Gateway:
    """The application and its one reaction to SIGTERM."""

    def __init__(self, app: ASGIApp, edge: Edge) -> None:
        self.app = app
        self._edge = edge

    async def drain(self) -> None:
        """Takes nothing new, lets running calls answer within the drain time, then ends the streams."""
        edge = self._edge
        edge.draining = True
        await _until(lambda: not any(session.running for session in edge.bus), edge.config.timeouts.drain)
        for session in edge.bus:
            session.finish("the gateway is shutting down")
        await _until(lambda: not len(edge.bus), FAREWELL)


def create_app(
    config: Config, tools: Mapping[str, Tool], key: Ed25519PublicKey, workers: Workers, account: str
) -> Gateway:
    """Wires one gateway process. `workers` is connected to the supervisor; `account` runs the calls."""
    # The response's own end at SIGTERM would cut off running calls: `drain` ends the streams.
    AppStatus.disable_automatic_graceful_drain()  # type: ignore[no-untyped-call]  # the library's is untyped
    edge = Edge(config, Authenticator(key, lambda: workers.users), workers, Dispatch(config, tools, workers))

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        workers.start()
        await workers.warm(account)
        clock = asyncio.get_running_loop().create_task(_tick(edge))
        clock.add_done_callback(_must_go_on)
        try:
            yield
        finally:
            clock.cancel()
            workers.close()

    routes = [
        Route("/sse", Streaming(edge)),
        Route("/message", Messages(edge)),
        Route("/healthz", State(lambda: True)),
        Route("/readyz", State(lambda: not edge.draining)),
    ]
    app = Starlette(routes=routes, lifespan=lifespan)
    app.router.redirect_slashes = False
    app.router.default = not_found
    return Gateway(_OneSpelling(app), edge)


class _OneSpelling:
    """`/sse/` and `//sse` are `/sse`: nothing is answered with a redirect, which would drop a client's token."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = scope["path"]
            if "//" in path or path.endswith("/"):
                scope["path"] = "/" + "/".join(part for part in path.split("/") if part)
        await self._app(scope, receive, send)


async def _tick(edge: Edge) -> None:
    """The sessions' clock: pings, expiry, removed users."""
    interval = max(SHORTEST_TICK, min(1.0, edge.config.timeouts.ping / 2))
    while True:
        await asyncio.sleep(interval)
        now, clock, users = time.monotonic(), time.time(), edge.users
        for session in edge.bus:
            session.tick(now, clock, users)
        edge.rate.forget_full()


def _must_go_on(clock: asyncio.Task[None]) -> None:
    """Without its clock a gateway would keep the streams of removed users: better that another takes its place."""
    if not clock.cancelled():
        logger.critical("the sessions' clock stopped", exc_info=clock.exception())
        os._exit(70)  # EX_SOFTWARE


async def _until(condition: Callable[[], bool], seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.02)
