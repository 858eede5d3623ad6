"""The method table and `tools/call`: a Call becomes the finished bytes of its response.

The one place where errors become answers: what went wrong below arrives here as a typed exception.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final, Protocol

from gateway.auth import Identity
from gateway.config import Config
from gateway.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MAX_ID,
    METHOD_NOT_FOUND,
    Call,
    RpcError,
    encode,
    error_message,
    result_message,
)
from gateway.workers import Caller as WorkersCaller
from gateway.workers import ToolFault, WorkerLost, Workers
from tools import Tool, error_result
from tools import encode as encode_result

logger = logging.getLogger(__name__)

VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
# MCP's Python clients end a stream over an event of 1 MiB (wire contract, section 6).
INITIALIZED_LIMIT: Final = 1_000_000
# `event: message`, `data: `, the envelope and the line ends around a result, without the id.
EVENT_OVERHEAD: Final = 64
# Characters of a caller's words that an error repeats.
MAX_ECHO: Final = 200
# Room for an error result that says what was too large.
LEAST_RESULT: Final = 512
INSTRUCTIONS: Final = (
    "Read-only sight of one host. files_list shows a directory as `ls -l` does; list_dir gives names, recursively if "
    "asked; read_files_batch reads text files; read_tree lists a directory of the git repository at a revision. "
    "Paths are absolute."
)


class Caller(WorkersCaller, Protocol):
    """What dispatch knows of the session that a call belongs to. `protocol` is the MCP version that `initialize`
    agreed on, None for a client that never asked."""

    protocol: str | None

    def notify(self, method: str, params: bytes) -> None:
        """Sends a notification around finished JSON bytes."""


@dataclass(frozen=True, slots=True)
class Work:
    """A call on its way to a worker. All that is kept of what the client sent is `request`, in its shortest form:
    parsed, 4 MiB of JSON can be 100 MiB of objects. `progress_token` is JSON text, empty where none was given."""

    id: str
    tool: str
    request: bytes
    progress_token: bytes


class Dispatch:
    def __init__(self, config: Config, tools: Mapping[str, Tool], workers: Workers) -> None:
        self._workers = workers
        self._timeout = config.timeouts.tool
        self._result_limit = config.limits.result
        self._names = config.tool_names
        self._tools = {spelling: tool for tool in tools.values() for spelling in (tool.name, tool.safe_name)}
        self._documented = encode({"tools": [tool.descriptor(tool.name) for tool in tools.values()]})
        self._model_safe = encode({"tools": [tool.descriptor(tool.safe_name) for tool in tools.values()]})
        self._version = version("ssegate")
        self._methods: dict[str, Callable[[dict[str, Any], Caller], bytes]] = {
            "initialize": self._initialize,
            "ping": lambda _params, _caller: b"{}",
            "tools/list": self._list_tools,
            "resources/list": lambda _params, _caller: b'{"resources":[]}',
            "resources/templates/list": lambda _params, _caller: b'{"resourceTemplates":[]}',
        }

    def full(self, identity: Identity) -> bool:
        return self._workers.full(identity)

    def begin(self, call: Call, caller: Caller, share: int) -> bytes | Work:
        """The response of every method but `tools/call`, for which it is the work to be done."""
        try:
            params = _object(call.params)
            if call.method == "tools/call":
                return self._work(call, params, caller, share)
            method = self._methods.get(call.method)
            if method is None:
                return error_message(call.id, RpcError(METHOD_NOT_FOUND, f"Method not found: {call.method[:MAX_ECHO]}"))
            return result_message(call.id, method(params, caller))
        except RpcError as error:
            return error_message(call.id, error)

    async def carry_out(self, work: Work, caller: Caller) -> bytes:
        """The response of a `tools/call`. Cancelled: the work stops and there is none."""

        def progress(members: bytes) -> None:  # comes only for a call with a progress token
            caller.notify("notifications/progress", b'{"progressToken":%b,%b}' % (work.progress_token, members))

        try:
            async with asyncio.timeout(self._timeout):
                result = await self._workers.run(work.request, caller, progress)
        except TimeoutError:
            result = _failure(f"timed out after {self._timeout:g} seconds - the call was stopped")
        except WorkerLost:
            result = _failure(
                f"the process that ran {work.tool} ended before it answered, twice - try a smaller request; "
                "the gateway's log says more"
            )
        except ToolFault as fault:
            logger.error("tool %s failed", work.tool, extra={"traceback": str(fault)})  # noqa: TRY400 - the tool's counts
            return error_message(work.id, RpcError(INTERNAL_ERROR, "Internal error"))
        except Exception:  # a bug of ours: its text stays in the log
            logger.exception("call of %s failed", caller.identity.subject)
            return error_message(work.id, RpcError(INTERNAL_ERROR, "Internal error"))
        return result_message(work.id, result)

    def _work(self, call: Call, params: dict[str, Any], caller: Caller, share: int) -> Work:
        name = params.get("name")
        if not isinstance(name, str):
            raise RpcError(INVALID_PARAMS, "Invalid params: name must be a string")
        tool = self._tools.get(name)
        if tool is None:
            there_are = sorted({tool.name for tool in self._tools.values()})
            raise RpcError(INVALID_PARAMS, f"Unknown tool: {name[:MAX_ECHO]}", {"tools": there_are})
        arguments = params.get("arguments")
        token = _progress_token(params)
        request = {
            "tool": tool.name,
            # What cannot be trusted to mean one thing does not travel.
            "arguments": {} if arguments is None or call.arguments_fault is not None else arguments,
            "fault": call.arguments_fault,
            "limit": max(LEAST_RESULT, self._limit(caller) // share - EVENT_OVERHEAD - len(call.id)),
            "timeout": self._timeout,
            "progress": token != b"",
        }
        return Work(call.id, tool.name, encode(request), token)

    def _limit(self, caller: Caller) -> int:
        """Bytes that one event may have (wire contract, section 6)."""
        return self._result_limit if caller.protocol is None else min(self._result_limit, INITIALIZED_LIMIT)

    def _initialize(self, params: dict[str, Any], caller: Caller) -> bytes:
        asked = params.get("protocolVersion")
        caller.protocol = asked if asked in VERSIONS else VERSIONS[-1]
        return encode(
            {
                "protocolVersion": caller.protocol,
                "capabilities": {"tools": {}, "resources": {}},
                "serverInfo": {"name": "ssegate", "version": self._version},
                "instructions": INSTRUCTIONS,
            }
        )

    def _list_tools(self, _params: dict[str, Any], caller: Caller) -> bytes:
        if self._names == "auto":
            return self._documented if caller.protocol is None else self._model_safe
        return self._documented if self._names == "documented" else self._model_safe


def _object(params: dict[str, Any] | list[Any]) -> dict[str, Any]:
    if isinstance(params, list):
        raise RpcError(INVALID_PARAMS, "Invalid params: params must be an object with named members")
    return params


def _progress_token(params: dict[str, Any]) -> bytes:
    """`_meta.progressToken` as JSON text: a string or a whole number (MCP, "Progress"); empty where none was given."""
    meta = params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    if isinstance(token, str) or (isinstance(token, int) and not isinstance(token, bool)):
        shown = encode(token)
        return shown if len(shown) <= MAX_ID else b""  # it would be sent with every notification
    return b""


def _failure(text: str) -> bytes:
    return encode_result(error_result(text))
