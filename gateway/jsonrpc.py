"""Bytes <-> JSON-RPC 2.0 messages; no I/O. The only place that parses JSON from outside.

What is refused as a whole (`Malformed`) and what is answered on the stream (`Fault`) is section 4 of the wire
contract; the codes are section 5.1 of the JSON-RPC 2.0 specification.
"""

from __future__ import annotations

import json
import math
from array import array
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
# The range -32000..-32099 is the server's own (JSON-RPC 2.0, section 5.1).
REFUSED: Final = -32000

MAX_DEPTH: Final = 64
MAX_BATCH: Final = 100
# An id stands in its answer beside the result, whose size is limited.
MAX_ID: Final = 1024
NULL_ID: Final = "null"


class Malformed(Exception):
    """The body is no JSON-RPC at all; nothing of it was carried out. `str()` says why, for the log."""


class RpcError(Exception):
    """Becomes the `error` member of an answer."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


@dataclass(frozen=True, slots=True)
class Call:
    """A request. `id` is its JSON text (`1`, `"1"`), so that type and digits are echoed exactly.

    `arguments_fault` is what is wrong inside `params.arguments` (a member that stands twice, a lone surrogate):
    the tool's business, not this layer's.
    """

    id: str
    method: str
    params: dict[str, Any] | list[Any]
    arguments_fault: str | None = None


@dataclass(frozen=True, slots=True)
class Notification:
    method: str
    params: dict[str, Any] | list[Any]


@dataclass(frozen=True, slots=True)
class Fault:
    """JSON-RPC-shaped, but not a valid message: it is answered with `error` under `id`."""

    id: str
    error: RpcError


@dataclass(frozen=True, slots=True)
class Reply:
    """A response object of the client; this server asks nothing, so it is dropped."""


Message = Call | Notification | Fault | Reply


@dataclass(frozen=True, slots=True)
class Batch:
    """Up to `MAX_BATCH` messages in one array (JSON-RPC 2.0, section 6)."""

    messages: tuple[Message, ...]


def decode(body: bytes) -> Message | Batch:
    """Raises Malformed for anything that is not one JSON object or a non-empty array, strictly read."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Malformed(f"not UTF-8 at byte {error.start}") from None
    _check_depth(body)
    # Only a text with such an escape can hold a lone surrogate: UTF-8 itself has none.
    suspect = "\\ud" in text or "\\uD" in text
    try:
        try:
            value = _UNIQUE.decode(text)
        except _Doubled:
            suspect = True
            value = _MARKED.decode(text)
    except (ValueError, RecursionError) as error:
        raise Malformed(str(error)) from None
    if isinstance(value, dict):
        return _message(value, suspect=suspect)
    if isinstance(value, list):
        if not 0 < len(value) <= MAX_BATCH:
            raise Malformed(f"a batch of {len(value)} messages; 1 to {MAX_BATCH} are allowed")
        return Batch(tuple(_message(member, suspect=suspect) for member in value))
    raise Malformed("neither an object nor an array")


def _message(value: Any, *, suspect: bool) -> Message:
    if not isinstance(value, dict):
        if suspect and (fault := _fault_in(value)):
            raise Malformed(fault)
        return Fault(NULL_ID, RpcError(INVALID_REQUEST, "Invalid Request: a message must be an object"))
    arguments_fault = _strictly(value) if suspect else None
    if "method" not in value and ("result" in value or "error" in value):
        return Reply()
    identifier = id_text(value["id"]) if "id" in value else None
    if identifier is not None and len(identifier) > MAX_ID:
        return Fault(NULL_ID, RpcError(INVALID_REQUEST, f"Invalid Request: id is longer than {MAX_ID} characters"))
    if wrong := _wrong(value, identifier):
        return Fault(identifier or NULL_ID, RpcError(INVALID_REQUEST, f"Invalid Request: {wrong}"))
    method, params = value["method"], value.get("params", {})
    if identifier is None:
        return Notification(method, params)
    return Call(identifier, method, params, arguments_fault)


def _wrong(value: dict[str, Any], identifier: str | None) -> str | None:
    """What makes an object no request (JSON-RPC 2.0, section 4), or None."""
    if "id" in value and identifier is None:
        return "id must be a string or a number"
    if value.get("jsonrpc") != "2.0":
        return 'jsonrpc must be "2.0"'
    if not isinstance(value.get("method"), str):
        return "method must be a string"
    if not isinstance(value.get("params", {}), (dict, list)):
        return "params must be an object or an array"
    return None


def id_text(value: Any) -> str | None:
    """The id's JSON text, or None for a type that an id may not have."""
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, bool):
        return None
    if isinstance(value, _Float):
        return value.text
    if isinstance(value, int):
        return str(value)
    return None


class _Float(float):
    """A number with fraction or exponent that remembers how it was written."""

    __slots__ = ("text",)

    def __new__(cls, text: str) -> _Float:
        number = super().__new__(cls, text)
        if math.isinf(number):
            raise ValueError(f"number out of range: {text[:20]}")
        number.text = text
        return number

    text: str


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


class _Duplicated(dict[str, Any]):
    """An object in which `name` stands twice. RFC 8259 section 4 leaves its meaning open, so it is refused."""

    name: str


class _Doubled(Exception):
    """Some member stands twice."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _Doubled
    return members


def _marked(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    doubled = _Duplicated(members)
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            doubled.name = name
            break
        seen.add(name)
    return doubled


# Both are strict where `json` is lenient. The second one reads what the first gave up on, to tell where it is.
_UNIQUE: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_Float, parse_constant=_no_constant)
_MARKED: Final = json.JSONDecoder(object_pairs_hook=_marked, parse_float=_Float, parse_constant=_no_constant)


def _strictly(message: dict[str, Any]) -> str | None:
    """Raises Malformed for a double member or a lone surrogate outside `params.arguments`; inside, returns the
    sentence for the tool."""
    params = message.get("params")
    if not isinstance(params, dict) or "arguments" not in params:
        fault = _fault_in(message)
    else:
        outside = dict(params)
        arguments = outside.pop("arguments")
        # A copy is a plain dict: ask the originals about themselves first.
        fault = _own_fault(message) or _own_fault(params) or _fault_in({**message, "params": outside})
        if fault is None:
            return _fault_in(arguments)
    if fault is not None:
        raise Malformed(fault)
    return None


def _own_fault(value: dict[str, Any]) -> str | None:
    if isinstance(value, _Duplicated):
        return f"member {json.dumps(value.name)} stands twice in one object - give it once"
    return None


def _fault_in(value: Any) -> str | None:
    """The first double member or lone surrogate in a JSON value, as a sentence. Recursion is bounded by MAX_DEPTH."""
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            return f"a string holds the lone surrogate \\u{ord(value[error.start]):04x}, which is no character"
        return None
    if isinstance(value, dict):
        if fault := _own_fault(value):
            return fault
        members: Any = (part for pair in value.items() for part in pair)
    elif isinstance(value, list):
        members = value
    else:
        return None
    return next((fault for member in members if (fault := _fault_in(member))), None)


# Brackets as steps down and up, as array type "b" reads them; all other bytes are in the way.
_STEPS: Final = bytes.maketrans(b"{[}]", b"\x01\x01\xff\xff")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"{[}]"))


def _check_depth(body: bytes) -> None:
    """Raises Malformed where arrays and objects are nested deeper than MAX_DEPTH, before anything recurses.

    Whole-body operations instead of our own loop over the brackets: 4 MiB of them would hold up every stream for a
    second. A body that is no JSON may pass or fail here; the parser refuses it in any case.
    """
    if body.count(b"{") + body.count(b"[") <= MAX_DEPTH:
        return
    # Without escapes, every second piece between quotes is inside a string.
    outside = b"".join(body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
    steps = array("b", outside.translate(_STEPS, _NO_BRACKETS))
    if max(accumulate(steps), default=0) > MAX_DEPTH:
        raise Malformed(f"nested deeper than {MAX_DEPTH}")


def result_message(identifier: str, result: bytes) -> bytes:
    """A response around finished JSON bytes; members in the order of the wire contract, section 3."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (identifier.encode("ascii"), result)


def error_message(identifier: str, error: RpcError) -> bytes:
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        body["data"] = error.data
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (identifier.encode("ascii"), encode(body))


def notification_message(method: str, params: bytes) -> bytes:
    """A notification around finished JSON bytes of its params."""
    return b'{"jsonrpc":"2.0","method":%b,"params":%b}' % (encode(method), params)


def encode(value: Any) -> bytes:
    """Compact ASCII JSON."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")
