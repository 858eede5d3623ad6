"""The worker's loop: one request in, progress and one answer out, over a stream socket pair.

Frames, gateway to worker: 4 bytes length (big-endian), then a JSON object
    {"tool", "arguments", "fault", "limit", "timeout", "progress"}
Frames, worker to gateway: 1 byte kind, 4 bytes length, then that many bytes
    PROGRESS  JSON members `"progress":..,"total":..,"message":..` for `notifications/progress`, without braces
    ANSWER    the finished JSON bytes of the `tools/call` result
    FAULT     a traceback for the log: the tool has a bug
"""

from __future__ import annotations

import _thread
import contextlib
import json
import socket
import struct
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from tools._text import ascii_json
from tools._tool import Context, Tool, bounded, call

REQUEST: Final = struct.Struct("!I")
FRAME: Final = struct.Struct("!cI")
PROGRESS: Final = b"P"
ANSWER: Final = b"A"
FAULT: Final = b"F"

# Wire contract, section 6: progress at most 4 times a second.
PROGRESS_INTERVAL: Final = 0.25

# Milliseconds in which a thread that has done its work is gone.
LAST_THREADS: Final = 20


def serve(connection: socket.socket, tools: Mapping[str, Tool], base: Context) -> None:
    """Answers requests until the gateway closes its end. `base` is what every call of this worker may know."""
    with contextlib.suppress(ConnectionError):  # it died in the middle of an answer
        _serve(connection, tools, base)


def _serve(connection: socket.socket, tools: Mapping[str, Tool], base: Context) -> None:
    while True:
        head = _receive(connection, REQUEST.size)
        if head is None:
            return
        body = _receive(connection, REQUEST.unpack(head)[0])
        if body is None:
            return
        kind, payload = _answer(json.loads(body), tools, base, connection)
        _send(connection, kind, payload)
        if not _alone():
            # A thread of the call still waits in the kernel, for a dead mount perhaps, and would keep the socket open
            # even after this process was killed: the gateway is told now, and takes another worker.
            connection.shutdown(socket.SHUT_RDWR)
            return


def _alone() -> bool:
    """Whether the threads that the last call may have used are gone; the last ones get a moment to end."""
    for _ in range(LAST_THREADS):
        if not _thread._count():
            return True
        time.sleep(0.001)
    return False


def _answer(
    request: dict[str, Any], tools: Mapping[str, Tool], base: Context, connection: socket.socket
) -> tuple[bytes, bytes]:
    tool = tools[request["tool"]]
    context = replace(base, limit=request["limit"], deadline=time.monotonic() + request["timeout"])
    if request["progress"]:
        context = replace(context, progress=_reporter(connection))
    try:
        return ANSWER, bounded(tool, call(tool, request["arguments"], request["fault"], context), context)
    except Exception:  # noqa: BLE001 - a bug in a tool: the traceback goes to the log, the caller gets -32603
        return FAULT, traceback.format_exc().encode("utf-8", "backslashreplace")


def _reporter(connection: socket.socket) -> Callable[[int, int | None, str], None]:
    """A `Context.progress` that keeps MCP's rules: strictly increasing, at most 4 a second."""
    last_done, last_time = 0, time.monotonic()

    def report(done: int, total: int | None, message: str) -> None:
        nonlocal last_done, last_time
        now = time.monotonic()
        if done <= last_done or now - last_time < PROGRESS_INTERVAL:
            return
        last_done, last_time = done, now
        members: dict[str, Any] = {"progress": done}
        if total is not None:
            members["total"] = total
        members["message"] = message
        _send(connection, PROGRESS, ascii_json(members)[1:-1].encode("ascii"))

    return report


def _send(connection: socket.socket, kind: bytes, payload: bytes) -> None:
    # Two writes only where joining would copy a large answer.
    head = FRAME.pack(kind, len(payload))
    if len(payload) < 65536:
        connection.sendall(head + payload)
    else:
        connection.sendall(head)
        connection.sendall(payload)


def _receive(connection: socket.socket, size: int) -> bytes | None:
    """Exactly `size` bytes, or None when the gateway has closed its end."""
    data = connection.recv(size, socket.MSG_WAITALL)
    if len(data) == size:
        return data
    parts = [data]
    got = len(data)
    while data:  # MSG_WAITALL may return early on a signal
        data = connection.recv(size - got, socket.MSG_WAITALL)
        parts.append(data)
        got += len(data)
        if got == size:
            return b"".join(parts)
    return None
