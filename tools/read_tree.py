"""`read_tree`: a directory of a git revision, a page at a time, answered in the envelope of its seed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec
import pygit2
from pygit2.enums import ObjectType

from tools import _cursor, _revision, _tree
from tools._store import Fault, Store, damaged, opened
from tools._text import ascii_json, name_text, readable_json, shown
from tools._tool import Context, Result, encode, structured, tool


class ReadTreeReq(msgspec.Struct, frozen=True):
    rev: str
    path: str | None = None
    cursor: str | None = None
    depth: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    limit: Annotated[int, msgspec.Meta(ge=1)] = 250


# The seed's schema, member by member; a test holds it to the seed and to the type above.
INPUT_SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "description": "Which directory of which revision to list, how deep, and which page of the listing.",
    "properties": {
        "cursor": {
            "description": "The `cursor` of the page before, unchanged, to go on after its last entry; its content has "
            "no meaning outside this tool. Leave it out for the first page.",
            "type": ["string", "null"],
        },
        "depth": {
            "default": 1,
            "description": "Levels of directories to list, 1 to 64: 1 is the directory's own entries, 2 adds the "
            "entries of the directories in it, and so on.",
            "format": "uint32",
            "maximum": 64,
            "minimum": 1,
            "type": "integer",
        },
        "limit": {
            "default": 250,
            "description": "Entries on one page at most, 1 or more; 100 suits clients that cut long results.",
            "format": "uint",
            "minimum": 1,
            "type": "integer",
        },
        "path": {
            "description": "The directory to list, relative to the repository's root, such as `src/lib`; leave it out "
            "for the root.",
            "type": ["string", "null"],
        },
        "rev": {
            "description": "The revision to read: a branch, tag or other ref as git users write it (`main`, "
            "`release/1.2`, `HEAD`), a full commit id, or at least 12 digits of one that no other begins with; "
            "`~N` after it goes N first-parent commits back.",
            "type": "string",
        },
    },
    "required": ["rev"],
    "title": "ReadTreeReq",
    "type": "object",
}

_ID: Final = {"type": "string", "pattern": "^[0-9a-f]{40}([0-9a-f]{24})?$"}
_ENTRY: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "Relative to the directory listed, with `/` below depth 1."},
        "name_hex": {
            "type": "string",
            "pattern": "^([0-9a-f]{2})+$",
            "description": "The exact bytes of a name that is not UTF-8; only then.",
        },
        "kind": {"enum": ["file", "dir", "symlink", "submodule"]},
        "size": {
            "type": "integer",
            "minimum": 0,
            "description": "Bytes, of files and symlinks whose content is in the store.",
        },
        "id": _ID,
    },
    "required": ["name", "kind", "id"],
    "additionalProperties": False,
}
_RESULT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "entries": {"type": "array", "items": _ENTRY},
        "truncated": {"type": "boolean", "description": "More entries follow, from `cursor` on."},
        "cursor": {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"},
    },
    "required": ["entries", "truncated"],
    "additionalProperties": False,
    "if": {"properties": {"truncated": {"const": True}}},
    "then": {"required": ["cursor"]},
    "else": {"properties": {"cursor": False}},
}
_ERROR: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "code": {
            "enum": ["E_INVALID_ARG", "E_NOT_FOUND", "E_AMBIGUOUS", "E_NOT_A_DIR", "E_NOT_A_REPO", "E_INTERNAL"],
        },
        "message": {"type": "string"},
    },
    "required": ["code", "message"],
    "additionalProperties": False,
}
_META: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "repo": {"type": ["string", "null"], "description": "Path of the store, null when none is configured."},
        "elapsed_ms": {"type": "integer", "minimum": 0},
        "resolved": {
            "type": "object",
            "additionalProperties": _ID,
            "description": "The revision as asked, and the full id of the commit that was read for it.",
        },
        "auth": {"const": "bearer"},
    },
    "required": ["repo", "elapsed_ms", "resolved", "auth"],
    "additionalProperties": False,
}
OUTPUT_SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "ok": {"type": "boolean"},
        "op": {"const": "read_tree"},
        "api": {"const": 1},
        "result": _RESULT,
        "error": _ERROR,
        "meta": _META,
    },
    "required": ["ok", "op", "api", "meta"],
    "additionalProperties": False,
    "oneOf": [
        {"properties": {"ok": {"const": True}, "error": False}, "required": ["result"]},
        {"properties": {"ok": {"const": False}, "result": False}, "required": ["error"]},
    ],
}


# More than an envelope takes beside entries and revision: a path of 4,096 bytes (PATH_MAX) at 17 each, the longest
# cursor, and the rest. A character of the revision takes 24 at most (beyond U+FFFF, as two escapes, twice).
_FRAME: Final = 100_000
_MOST_CHARACTER: Final = 24


class Answering:
    """One call on its way to an envelope: when it began and what is known so far (`meta`)."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.began = time.monotonic_ns()
        self.resolved: dict[str, str] = {}

    def success(self, result: dict[str, Any]) -> Result:
        return structured({"ok": True, **self._name(), "result": result, "meta": self._meta()}, is_error=False)

    def failure(self, code: str, message: str) -> Result:
        error = {"code": code, "message": message}
        return structured({"ok": False, **self._name(), "error": error, "meta": self._meta()}, is_error=True)

    def _name(self) -> dict[str, Any]:
        return {"op": "read_tree", "api": 1}

    def _meta(self) -> dict[str, Any]:
        return {
            "repo": _repo_text(self.context),
            "elapsed_ms": (time.monotonic_ns() - self.began) // 1_000_000,
            "resolved": self.resolved,
            "auth": "bearer",
        }


def _repo_text(context: Context) -> str | None:
    return None if context.repository is None else name_text(os.fsencode(context.repository))


def refused(sentence: str, context: Context) -> Result:
    """The envelope for arguments that do not fit."""
    return Answering(context).failure("E_INVALID_ARG", sentence)


@tool(
    "read_tree",
    title="List a directory of a git revision",
    group="git",
    verb="tree",
    description="Lists a directory of the git repository as it is at a branch, tag or commit, without a checkout: each "
    "entry's name, kind, size and object id; with depth also the directories below. Use it to see which files a "
    "revision has, or had in the past. For files as they are on disk now, changed and untracked ones included, "
    "use list_dir or files/list instead. Long listings come in pages: while `truncated` is true, call again with "
    "the same rev, path and depth and the `cursor` given.",
    smaller="ask for a smaller limit",
    input_schema=INPUT_SCHEMA,
    output_schema=OUTPUT_SCHEMA,
    fault=refused,
)
def read_tree(arguments: ReadTreeReq, context: Context) -> Result:
    answering = Answering(context)
    try:
        return _listing(arguments, answering)
    except Fault as fault:
        return answering.failure(fault.code, str(fault))
    except (pygit2.GitError, OSError) as error:
        # Every other refusal has been looked for: what libgit2 still stumbles over is the store itself.
        damage = damaged(context.repository or "", str(error))
        return answering.failure(damage.code, str(damage))


def _listing(arguments: ReadTreeReq, answering: Answering) -> Result:
    revision = _revision.parse(arguments.rev)
    names = _tree.components(arguments.path)
    path, depth = "/".join(names), arguments.depth
    place = None if arguments.cursor is None else _cursor.read(arguments.cursor, path, depth)

    store = opened(answering.context)
    commit = _revision.resolve(revision, store) if place is None else _continued(revision, place, store)
    answering.resolved[revision.text] = str(commit.id)
    tree = _tree.directory(commit, names, store)
    start = () if place is None else place.position
    page = _tree.page(store, tree, depth, start, arguments.limit, answering.context.limit)

    def answer(shown_page: _tree.Page) -> Result:
        result: dict[str, Any] = {"entries": shown_page.entries, "truncated": shown_page.following is not None}
        if shown_page.following is not None:
            here = _cursor.Place(
                commit.id.raw, _cursor.binding(revision.text), _cursor.binding(path), depth, shown_page.following
            )
            result["cursor"] = _cursor.write(here)
        return answering.success(result)

    frame = _FRAME + len(revision.text) * _MOST_CHARACTER
    return _fitting(page, answer, answering.context.limit, frame)


def _continued(revision: _revision.Revision, place: _cursor.Place, store: Store) -> pygit2.Commit:
    """The commit that a cursor's listing began with. The same revision text may name another commit by now: the
    listing stays with the first. Another text is fine when it names that commit (its full id, as `resolved` gave it).
    """
    if place.rev != _cursor.binding(revision.text):
        commit = _revision.resolve(revision, store)
        if commit.id.raw != place.commit:
            raise Fault(
                "E_INVALID_ARG",
                f"cursor belongs to a listing of another revision than '{shown(revision.text)}' - "
                "repeat the rev of its page, or leave it out",
            )
        return commit
    id_ = place.commit.hex()
    if store.kind(id_) != ObjectType.COMMIT:
        raise Fault(
            "E_INVALID_ARG",
            f"cursor belongs to commit {id_}, which this store does not have (any more) - leave it out to start again",
        )
    return store.read(id_, "the commit of the cursor", pygit2.Commit)


def _fitting(page: _tree.Page, answer: Callable[[_tree.Page], Result], limit: int, frame: int) -> Result:
    """The page as a result, shortened until its encoding has at most `limit` bytes; one entry always stays. `frame` is
    the most that the rest of the result takes.

    A page that fits at its worst is not encoded here; a short one is what nearly every page is.
    """
    result = answer(page)
    worst = frame + len(page.entries) * _tree.MOST_ENTRY + page.name_bytes * _tree.MOST_NAME
    if worst <= limit:
        return result
    while (over := len(encode(result)) - limit) > 0 and len(page.entries) > 1:
        # As many from the end as make up for what is over. The cursor may be new or longer then: so look again.
        count = len(page.entries) - 1
        over -= _cost(page.entries[count])
        while over > 0 and count > 1:
            count -= 1
            over -= _cost(page.entries[count])
        page = page.shortened(count)
        result = answer(page)
    return result


def _cost(entry: dict[str, Any]) -> int:
    """Bytes that one entry adds to an encoded result: as JSON, as JSON text inside a JSON string, and two commas."""
    return len(ascii_json(entry)) + len(ascii_json(readable_json(entry))) - 2 + 2
