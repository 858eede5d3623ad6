"""How bytes (names, contents) become JSON text: the only place that decides."""

from __future__ import annotations

import encodings.unicode_escape  # noqa: F401 - else imported at first use, when it may be out of reach
import json
from typing import Any

# Built once: `json.dumps` with any argument makes a new encoder for each call.
_READABLE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_ASCII = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), allow_nan=False)


def name_text(name: bytes) -> str:
    """A file or object name as text; each undecodable sequence becomes U+FFFD (PEP 383 is not used: a lone
    surrogate has no UTF-8 form and would end a JSON reader)."""
    return name.decode("utf-8", "replace")


def name_hex(name: bytes) -> str | None:
    """The exact bytes in hex when `name_text` cannot show them, else None."""
    try:
        name.decode("utf-8")
    except UnicodeDecodeError:
        return name.hex()
    return None


def shown(path: str) -> str:
    """A caller's string inside a sentence of ours: one line, no terminal controls, at most 200 characters."""
    if len(path) > 200:
        path = path[:199] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in path)


def readable_json(value: Any) -> str:
    """Compact JSON for the text block that people and models read: other scripts stay readable."""
    return _READABLE.encode(value)


def ascii_json(value: Any) -> str:
    """Compact JSON for the wire: everything beyond ASCII is `\\uXXXX`, so U+2028, U+0085, CR and LF can never
    split an event (RFC 8259 section 7)."""
    return _ASCII.encode(value)
