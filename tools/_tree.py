"""Walking a tree of a commit in git's order, from any place in it, and a page of entries from there.

Tree objects are read as bytes: one pass gives modes, names and ids exactly as they are stored, in half the time that
an object for each entry takes, and a walk can begin at any offset.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pygit2
from pygit2.enums import FileMode

from tools._store import Fault, Store, damaged
from tools._text import name_hex, name_text, shown

# One entry of a tree object: octal mode, name, the 20 bytes of a SHA-1 id.
_ENTRY: Final = re.compile(rb"([0-7]+) ([^\0]+)\0(.{20})", re.DOTALL)

# The modes that git writes; `_other_kind` knows the rest.
_KINDS: Final = {b"100644": "file", b"100755": "file", b"40000": "dir", b"120000": "symlink", b"160000": "submodule"}

Position = tuple[int, ...]


class Found(NamedTuple):
    """One entry of a walk. Its position is `(*above, offset)`: where it stands in its tree object, and before that
    the same of each directory on the way. `name` is relative to where the walk began."""

    above: Position
    offset: int
    name: bytes
    kind: str
    id: str


class Page(NamedTuple):
    """entries     as the result shows them
    positions   of the entries
    following   the position of the entry after the last one, None when the listing ends here
    name_bytes  length of all names together
    """

    entries: list[dict[str, Any]]
    positions: list[Position]
    following: Position | None
    name_bytes: int

    def shortened(self, count: int) -> Page:
        """The first `count` entries; there must be more than that."""
        return self._replace(
            entries=self.entries[:count], positions=self.positions[:count], following=self.positions[count]
        )


def components(path: str | None) -> list[str]:
    """The names on the way to a directory, none for the root. Raises Fault E_INVALID_ARG for a path that is not plain
    names joined by `/`; one trailing slash is fine."""
    if not path:
        return []
    if path.startswith("/"):
        raise Fault(
            "E_INVALID_ARG", f"path '{shown(path)}' starts with '/' - give it relative to the repository's root"
        )
    if "\0" in path:
        raise Fault("E_INVALID_ARG", f"path '{shown(path)}' contains a NUL character - no name can hold one")
    names = path.removesuffix("/").split("/")
    for name in names:
        if name in ("", ".", ".."):
            raise Fault(
                "E_INVALID_ARG",
                f"path '{shown(path)}' contains '{name}' as a name - give plain names joined by single slashes, "
                "such as src/lib, or leave path out for the root",
            )
    return names


def directory(commit: pygit2.Commit, names: Sequence[str], store: Store) -> str:
    """The id of the directory of a commit that is reached by `names`. Raises Fault E_NOT_FOUND, E_NOT_A_DIR."""
    id_, what = commit.tree_id, f"the tree of commit {commit.id}"
    for count, name in enumerate(names, start=1):
        so_far = shown("/".join(names[:count]))
        tree = store.read(id_, what, pygit2.Tree)
        try:
            # Through fsdecode, since pygit2 encodes names as file names: the bytes are UTF-8 whatever the locale.
            entry = tree[os.fsdecode(name.encode())]
        except KeyError:
            raise Fault("E_NOT_FOUND", _missing(so_far, names[: count - 1], name)) from None
        if entry.filemode != FileMode.TREE:
            raise Fault("E_NOT_A_DIR", _no_directory(so_far, entry))
        id_, what = entry.id, f"directory '{so_far}'"
    return str(id_)


def _missing(path: str, parent: Sequence[str], name: str) -> str:
    where = f"'{shown('/'.join(parent))}'" if parent else "the root"
    sentence = f"path '{path}' does not exist at this revision - list {where} to see what is there"
    if "\ufffd" in name:
        sentence += "; a name that is not UTF-8 cannot be given, list it from above with a larger depth"
    return sentence


def _no_directory(path: str, entry: pygit2.Object) -> str:
    if entry.filemode == FileMode.COMMIT:
        return f"path '{path}' is a submodule - its content is in another repository"
    kind = "symlink, and links are not followed" if entry.filemode == FileMode.LINK else "file"
    return f"path '{path}' is a {kind} - list the directory that holds it"


def page(store: Store, tree: str, depth: int, start: Position, limit: int, room: int) -> Page:
    """The entries below the tree with the id `tree` from `start` on: at most `limit`, and none more once they surely
    pass `room` bytes of result.

    Sizes are read for these entries only; one more entry is looked at to know whether any follows.
    """
    entries: list[dict[str, Any]] = []
    positions: list[Position] = []
    name_bytes = 0
    for found in walk(store, tree, depth, start):
        position = (*found.above, found.offset)
        if len(entries) == limit or len(entries) * LEAST_ENTRY + name_bytes * LEAST_NAME > room:
            return Page(entries, positions, position, name_bytes)
        entries.append(_entry(found, store))
        positions.append(position)
        name_bytes += len(found.name)
    return Page(entries, positions, None, name_bytes)


# What an entry and a byte of its name add to a result that holds them twice, as JSON and as JSON text inside a JSON
# string. Least: {"name":"","kind":"dir","id":"40 digits"}, plain letters. Most: with size and name_hex, and control
# characters (\u0001 and \\u0001 for one byte, and two digits of name_hex, twice).
LEAST_ENTRY: Final = 140
LEAST_NAME: Final = 2
MOST_ENTRY: Final = 350
MOST_NAME: Final = 17


def _entry(found: Found, store: Store) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": name_text(found.name)}
    exact = name_hex(found.name)
    if exact is not None:
        entry["name_hex"] = exact
    entry["kind"] = found.kind
    if found.kind in ("file", "symlink"):
        size = store.size(found.id)
        if size is not None:
            entry["size"] = size
    entry["id"] = found.id
    return entry


@dataclass(slots=True)
class _Level:
    """A directory on the way of a walk: its tree object, its position, what stands before its names, the next entry."""

    tree: bytes
    above: Position
    prefix: bytes
    offset: int


def walk(store: Store, tree: str, depth: int, start: Position = ()) -> Iterator[Found]:
    """The entries of `tree` and of the directories in it, `depth` levels deep, each directory before what is in it:
    the order of `git ls-tree -r -t`. Begins at the entry at `start`; of what comes before it only the directories
    that hold it are read. Raises Fault E_INVALID_ARG for a `start` where no entry can be."""
    levels = _descended(store, tree, depth, start)
    while levels:
        level = levels[-1]
        match = _ENTRY.match(level.tree, level.offset)
        if match is None:
            if level.offset != len(level.tree):
                raise damaged(store.path, _malformed(level))
            levels.pop()
            continue
        mode, name, raw_id = match.groups()
        found = Found(
            level.above, level.offset, level.prefix + name, _KINDS.get(mode) or _other_kind(mode), raw_id.hex()
        )
        level.offset = match.end()
        yield found
        if found.kind == "dir" and len(levels) < depth:
            levels.append(_entered(store, found))


def _descended(store: Store, tree: str, depth: int, start: Position) -> list[_Level]:
    level = _Level(store.tree_bytes(tree, "the directory listed"), (), b"", 0)
    levels = [level]
    if len(start) > depth:
        raise _nowhere()
    for offset in start[:-1]:
        match = _ENTRY.match(level.tree, offset)
        if match is None or (_KINDS.get(match[1]) or _other_kind(match[1])) != "dir":
            raise _nowhere()
        level.offset = match.end()
        level = _entered(store, Found(level.above, offset, level.prefix + match[2], "dir", match[3].hex()))
        levels.append(level)
    if start:
        level.offset = start[-1]
        if not _ENTRY.match(level.tree, level.offset):
            raise _nowhere()
    return levels


def _entered(store: Store, found: Found) -> _Level:
    tree = store.tree_bytes(found.id, f"directory '{shown(name_text(found.name))}'")
    return _Level(tree, (*found.above, found.offset), found.name + b"/", 0)


def _nowhere() -> Fault:
    return Fault("E_INVALID_ARG", "cursor names a place that this listing does not have - leave it out to start again")


def _other_kind(mode: bytes) -> str:
    """As git reads modes that it never writes (`canon_mode` in its cache.h): by file type, and what has none that it
    knows is a submodule."""
    value = int(mode, 8)
    if stat.S_ISREG(value):
        return "file"
    if stat.S_ISDIR(value):
        return "dir"
    return "symlink" if stat.S_ISLNK(value) else "submodule"


def _malformed(level: _Level) -> str:
    where = shown(name_text(level.prefix)) or "the directory listed"
    return f"the tree object of {where} is malformed at byte {level.offset}"
