"""`read_files_batch`: the contents of many text files in one call, each with its own success or failure (seed 002)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final

import msgspec

from tools._reading import FILE_LIMIT, Failure, NoRoom, Outcome, contents
from tools._text import ascii_json, readable_json
from tools._tool import Context, Result, encode, structured, tool

_Entry = dict[str, str]

_OUTPUT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "results": {
            "type": "object",
            "description": "Each path asked for, in that order and as it was written, with its content or its error.",
            "additionalProperties": {
                "oneOf": [
                    {
                        "type": "object",
                        "properties": {
                            "status": {"const": "ok"},
                            "content": {"type": "string", "description": "The file's text, exactly."},
                        },
                        "required": ["status", "content"],
                        "additionalProperties": False,
                    },
                    {
                        "type": "object",
                        "properties": {
                            "status": {"const": "error"},
                            "code": {"enum": ["not-found", "not-a-file", "fs-error"]},
                            "message": {"type": "string"},
                        },
                        "required": ["status", "code", "message"],
                        "additionalProperties": False,
                    },
                ],
            },
        },
    },
    "required": ["results"],
    "additionalProperties": False,
}


class ReadFilesBatch(msgspec.Struct, frozen=True):
    paths: Annotated[
        list[str],
        msgspec.Meta(
            description="Absolute paths of the files to read, such as /etc/hosts. A path given twice is read once."
        ),
    ]


@tool(
    "read_files_batch",
    title="Read text files",
    group="files",
    verb="read",
    description=(
        "Reads one or many UTF-8 text files on this host in one call and returns, for each path, its exact content or "
        "why it could not be read: a failure of one file leaves the others alone. Use it whenever you know the paths. "
        f"Each file may have up to {FILE_LIMIT // 1024 // 1024} MiB. To find out which files there are use list_dir; "
        "for sizes, owners and times files/list; for what a git revision contains read_tree."
    ),
    smaller="ask for fewer or smaller files in one call",
    output_schema=_OUTPUT,
)
def read_files_batch(arguments: ReadFilesBatch, context: Context) -> Result:
    paths = list(dict.fromkeys(arguments.paths))
    fit = _Fit(paths, context.limit)
    return structured({"results": {path: fit.entry(outcome) for path, outcome in contents(paths, context, fit.room)}})


class _Fit:
    """Keeps the result within the caller's limit: at any time all that is still to come could be refused in it.

    Entries are measured only when they might not fit: to measure a text takes as long as to read it.
    """

    def __init__(self, paths: Iterable[str], limit: int) -> None:
        self._limit = limit
        self._used = len(encode(structured({"results": dict.fromkeys(paths, _no_room(FILE_LIMIT, limit))})))
        self._reserved = _cost(_no_room(FILE_LIMIT, limit))
        self._unmeasured: list[_Entry] = []  # given, and in _used only as refusals
        self._at_most = 0  # what they come to, at most
        self._delivered = 0  # characters of content

    def room(self) -> int:
        """Bytes of content that can still fit, at most: each stands twice in a result."""
        return self._limit // 2 - self._delivered

    def entry(self, outcome: Outcome) -> _Entry:
        """What the result says of the next file."""
        if isinstance(outcome, NoRoom):
            return self._refuse(outcome.size)
        if isinstance(outcome, Failure):
            text = outcome.message
            entry = {"status": "error", "code": outcome.code, "message": text}
        else:
            text = outcome
            entry = {"status": "ok", "content": text}
        at_most = _FRAME + len(text) * (_MOST_ASCII if text.isascii() else _MOST)
        if self._used + self._at_most + at_most <= self._limit:
            self._unmeasured.append(entry)
            self._at_most += at_most
        else:
            self._used += sum(map(self._more, self._unmeasured))
            self._unmeasured.clear()
            self._at_most = 0
            more = self._more(entry)
            if self._used + more > self._limit:
                return self._refuse(len(text.encode()))
            self._used += more
        if isinstance(outcome, str):
            self._delivered += len(outcome)
        return entry

    def _refuse(self, size: int) -> _Entry:
        refusal = _no_room(size, self._limit)
        self._used += self._more(refusal)
        return refusal

    def _more(self, entry: _Entry) -> int:
        """Bytes that the entry takes beyond what is reserved for it, below 0 when it takes less."""
        return _cost(entry) - self._reserved


def _no_room(size: int, limit: int) -> _Entry:
    return {
        "status": "error",
        "code": "fs-error",
        "message": f"Not delivered: with its {size:,} bytes the result would pass this session's limit of {limit:,} "
        "bytes - ask for fewer files in one call",
    }


def _cost(entry: _Entry) -> int:
    """Bytes that an entry takes in the finished result: as structured content, and as JSON inside the text block."""
    return len(ascii_json(entry)) + len(ascii_json(readable_json(entry))) - len('""')


# What one character can cost: a control character, or one beyond U+FFFF. And what stands around the text.
_MOST_ASCII: Final = len(r"\u0001") + len(r"\\u0001")
_MOST: Final = 2 * len(r"\ud83d\ude00")
_FRAME: Final = _cost({"status": "error", "code": "not-a-file", "message": ""})
