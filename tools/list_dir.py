"""`list_dir`: the names in a directory, or the relative paths of everything below it (seed 000)."""

from __future__ import annotations

import os
from typing import Annotated, Any, Final

import msgspec

from tools import _walk
from tools._paths import Malformed, Refused, hidden_identities, locate
from tools._text import name_hex, name_text, shown
from tools._tool import Context, Result, ToolError, structured, tool

_SMALLER: Final = "list a directory further down, or one level at a time (recursive: false)"

_OUTPUT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "entries": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Names (flat) or paths relative to the directory (recursive), a directory before its "
            "contents, each directory's names in byte order. Bytes that are not UTF-8 are shown as U+FFFD.",
        },
        "undecodable": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "entry": {"type": "integer", "minimum": 0, "description": "Position in entries, from 0."},
                    "name_hex": {
                        "type": "string",
                        "pattern": "^([0-9a-f]{2})+$",
                        "description": "The exact bytes of that name or path, in hex.",
                    },
                },
                "required": ["entry", "name_hex"],
                "additionalProperties": False,
            },
            "minItems": 1,
            "description": "Only there when an entry is not UTF-8: the exact bytes of each such entry.",
        },
        "error": {
            "type": "object",
            "properties": {
                "code": {"enum": ["not-found", "not-a-dir", "fs-error"]},
                "message": {"type": "string"},
            },
            "required": ["code", "message"],
            "additionalProperties": False,
            "description": "In place of entries when the directory could not be listed.",
        },
    },
    "oneOf": [{"required": ["entries"]}, {"required": ["error"]}],
    "additionalProperties": False,
}


class ListDir(msgspec.Struct, frozen=True):
    path: Annotated[
        str,
        msgspec.Meta(description="Absolute path of the directory to list, such as /var/log. A link to one is entered."),
    ]
    recursive: Annotated[
        bool,
        msgspec.Meta(
            description="true: everything below, as paths relative to `path`; links are listed, never entered. "
            "false: the directory's own names only."
        ),
    ] = False


@tool(
    "list_dir",
    title="List names in a directory",
    group="files",
    verb="entries",
    description=(
        "Lists the names in a directory on this host, or with recursive: true the relative paths of everything below "
        "it, hidden files included. Use it to see what exists: explore a folder, find files in a tree, check whether "
        "a directory is empty. It gives names only. For sizes, owners, permissions and times use files/list; for the "
        "contents of files read_files_batch; for a directory as it stands in a git revision read_tree."
    ),
    smaller=_SMALLER,
    output_schema=_OUTPUT,
)
def list_dir(arguments: ListDir, context: Context) -> Result:
    path = arguments.path
    try:
        directory = locate(path, context)
        try:
            listed = _below(directory, context) if arguments.recursive else _walk.names(directory)
        finally:
            os.close(directory)
    except Malformed as error:
        return _failure("not-found", str(error))
    except Refused as error:
        return _failure("fs-error", str(error))
    except FileNotFoundError:
        return _failure("not-found", f"Directory not found: {shown(path)}")
    except NotADirectoryError as error:
        if _exists(path, context):
            return _failure("not-a-dir", f"Not a directory: {shown(path)}")
        return _failure("fs-error", f"{error.strerror}: {shown(path)}")
    except OSError as error:
        return _failure("fs-error", f"{error.strerror}: {shown(path)}")
    return structured(_shown(listed))


def _below(directory: int, context: Context) -> list[bytes]:
    """Everything below, unless it is certain to pass the caller's limit: then the walk ends early (a walk of a whole
    host would otherwise need all our memory before it is refused)."""
    entries = size = 0

    def found_more(paths: list[bytes]) -> None:
        nonlocal entries, size
        entries += len(paths)
        # Each path stands twice in the result: as "path", in structuredContent and as \"path\", in the text.
        size += 2 * sum(map(len, paths)) + 8 * len(paths)
        if size > context.limit:
            raise ToolError(
                f"the listing passes this session's limit of {context.limit:,} bytes after {entries:,} entries "
                f"- {_SMALLER}"
            )
        context.progress(entries, None, "entries found")

    return _walk.paths(directory, hidden_identities(context), found_more)


def _shown(listed: list[bytes]) -> dict[str, Any]:
    try:  # all at once: one by one takes as long as the walk itself
        return {"entries": b"\0".join(listed).decode("utf-8").split("\0") if listed else []}
    except UnicodeDecodeError:
        exact = ((position, name_hex(name)) for position, name in enumerate(listed))
        return {
            "entries": [name_text(name) for name in listed],
            "undecodable": [{"entry": position, "name_hex": hexed} for position, hexed in exact if hexed is not None],
        }


def _exists(path: str, context: Context) -> bool:
    """Whether there is something that is no directory: the kernel says ENOTDIR for FILE/ and for FILE/NAME alike."""
    try:
        os.close(locate(path.rstrip("/") or "/", context))
    except (OSError, Refused):
        return False
    return True


def _failure(code: str, message: str) -> Result:
    return structured({"error": {"code": code, "message": message}}, is_error=True)
