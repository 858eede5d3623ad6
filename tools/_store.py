"""The git store behind `read_tree`: opening it, keeping it open while it is the same, and the refusals it can give."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, TypeVar

import pygit2
from pygit2.enums import ConfigLevel, ObjectType, Option, RepositoryOpenFlag

from tools._paths import below
from tools._text import name_text, shown
from tools._tool import Context

Code = Literal["E_INVALID_ARG", "E_NOT_FOUND", "E_AMBIGUOUS", "E_NOT_A_DIR", "E_NOT_A_REPO", "E_INTERNAL"]

T = TypeVar("T", pygit2.Commit, pygit2.Tree, pygit2.Tag)


class Fault(Exception):
    """Why an operation on the store failed. `str(fault)` says what came and how to go on; `code` is for programs."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


def damaged(path: str, what: str) -> Fault:
    """The refusal for a store in which something that must be there is not, or cannot be read."""
    name = shown(name_text(os.fsencode(path)))
    return Fault("E_INTERNAL", f"the store {name} is damaged or cannot be read: {what} - run `git fsck` there")


# What pygit2 raises for an object that cannot be read, by the class of libgit2's error: a damaged length, for one, is
# "out of memory". KeyError, for one that is not there, is looked at before.
_BROKEN: Final = (pygit2.GitError, OSError, ValueError, MemoryError)

# The kinds that objects are stored as; a damaged pack can give others.
_STORED: Final = frozenset({ObjectType.COMMIT, ObjectType.TREE, ObjectType.BLOB, ObjectType.TAG})


@dataclass(frozen=True, slots=True)
class Store:
    """An open repository.

    bounds  the roots and hidden directories that it was opened under
    marks   what identifies the files that libgit2 reads only when it opens a repository
    packs   the store's own packs, without what the whole object database does around each look
    loose   the directories that hold loose objects: the store's own, then its alternates'
    """

    path: str
    repository: pygit2.Repository
    odb: pygit2.Odb
    packs: pygit2.OdbBackendPack
    loose: tuple[str, ...]
    bounds: tuple[tuple[str, ...], tuple[str, ...]]
    marks: Marks

    def missing(self, what: str, id_: str) -> Fault:
        """The refusal for an object that another one names, but that is not there."""
        return damaged(self.path, f"{what} is object {id_}, which is missing")

    def kind(self, id_: str) -> ObjectType | None:
        """What kind of object this is, None when it is not in the store. Nothing but its header is read."""
        header = self._header(id_)
        return None if header is None else ObjectType(header[0])

    def size(self, id_: str) -> int | None:
        """Bytes of an object's content, None when it is not in the store. Nothing but its header is read."""
        header = self._header(id_)
        return None if header is None else header[1]

    def read(self, id_: pygit2.Oid | str, what: str, kind: type[T]) -> T:
        """The object that another one names. Raises Fault E_INTERNAL when it is missing or of another kind."""
        self._check_loose(str(id_))
        try:
            found: object = self.repository.get(id_)
        except _BROKEN as error:
            raise damaged(self.path, f"object {id_}: {error}") from error
        if found is None:
            raise self.missing(what, str(id_))
        if not isinstance(found, kind):
            raise damaged(self.path, f"{what} is object {id_}, which is no {kind.__name__.lower()}")
        return found

    def tree_bytes(self, id_: str, what: str) -> bytes:
        """A tree object as it is stored. Raises Fault as `read`."""
        self._check_loose(id_)
        try:
            kind, content = self.odb.read(id_)
        except KeyError:
            raise self.missing(what, id_) from None
        except _BROKEN as error:
            raise damaged(self.path, f"object {id_}: {error}") from error
        if kind != ObjectType.TREE:
            raise damaged(self.path, f"{what} is object {id_}, which is no tree")
        return content

    def _header(self, id_: str) -> tuple[int, int] | None:
        for where in (self.packs, self.odb):
            try:
                kind, size = where.read_header(id_)
            except KeyError:
                continue
            except _BROKEN as error:
                raise damaged(self.path, f"object {id_}: {error}") from error
            if kind not in _STORED:
                raise damaged(self.path, f"object {id_}: it is of kind {kind}")
            return kind, size
        return None

    def _check_loose(self, id_: str) -> None:
        """Raises Fault E_INTERNAL for a loose object whose file is cut short or is no zlib stream: some of these
        libgit2 up to 1.9 would read for ever (its issue 7342). Other damage it finds itself."""
        if self.packs.exists(id_):
            return
        for directory in self.loose:
            try:
                with open(os.path.join(directory, id_[:2], id_[2:]), "rb", buffering=0) as file:
                    content = file.read()
            except OSError:  # not there, or not to be read: libgit2 says so
                continue
            stream = zlib.decompressobj()
            try:
                stream.decompress(content)
            except zlib.error as error:
                raise damaged(self.path, f"the file of object {id_}: {error}") from error
            if not stream.eof:
                raise damaged(self.path, f"the file of object {id_} is cut short")
            return


@dataclass(frozen=True, slots=True)
class Marks:
    """Which directories and files they were: {path: device and inode, for `files` also time and size; None: absent}.

    The time of `objects/pack` is that of the last pack that came or went; other directories change with every ref.
    """

    places: dict[str, tuple[int, ...] | None]
    files: dict[str, tuple[int, ...] | None]

    @classmethod
    def of(cls, path: str, directory: str, common: str) -> Marks:
        """The marks of a repository opened at `path`, of its git directory, and for a worktree of the git directory
        that it shares with others, else of the same again (gitrepository-layout(5))."""
        places = {
            *(path.rstrip("/"), os.path.join(path, ".git"), directory.rstrip("/")),
            *(os.path.join(common, name) for name in ("objects", "refs")),
        }
        files = (
            *(os.path.join(directory, name) for name in ("HEAD", "commondir")),
            *(os.path.join(common, name) for name in ("config", "shallow", "objects/info/alternates", "objects/pack")),
        )
        return cls({place: _identity(place) for place in places}, {file: _version(file) for file in files})

    def hold(self) -> bool:
        """Whether all of them are still the same."""
        return all(_identity(place) == mark for place, mark in self.places.items()) and all(
            _version(file) == mark for file, mark in self.files.items()
        )


def _identity(path: str) -> tuple[int, ...] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino)


def _version(path: str) -> tuple[int, ...] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)


def _common_directory(directory: str) -> str:
    try:
        with open(os.path.join(directory, "commondir"), "rb") as file:
            return os.path.join(directory, os.fsdecode(file.read(4096).rstrip(b"\n")))
    except OSError:  # no worktree
        return directory


# The store of the last call. A worker has one call at a time and as a rule one store; opening costs ten times as much
# as looking whether the open one is still the same.
_last: list[Store] = []


def opened(context: Context) -> Store:
    """The caller's store. Raises Fault E_NOT_A_REPO when there is none, or none that may be read or can be read.

    Refs and new packs are looked up by libgit2 on each use; what it reads once (configuration, `shallow`, the list
    of alternates, where a worktree's store is) is watched here, so that a store may go and come back.
    """
    path = context.repository
    if path is None:
        raise Fault(
            "E_NOT_A_REPO",
            "no repository is configured - set `repository` in the gateway's configuration, "
            "or start the gateway inside a git repository",
        )
    bounds = (context.roots, context.hidden)
    if _last:
        store = _last[0]
        if store.path == path and store.bounds == bounds and store.marks.hold():
            return store
        _last.clear()
    store = _open(path, bounds)
    _last.append(store)
    return store


def _open(path: str, bounds: tuple[tuple[str, ...], tuple[str, ...]]) -> Store:
    _prepare()
    name = shown(name_text(os.fsencode(path)))
    if not os.path.isabs(path):
        raise Fault("E_NOT_A_REPO", f"repository {name} is a relative path - set `repository` to an absolute one")
    _permit(path, name, *bounds)
    try:
        repository = pygit2.Repository(path, RepositoryOpenFlag.NO_SEARCH)
    except (pygit2.GitError, OSError) as error:
        raise Fault("E_NOT_A_REPO", _unreadable(path, name, str(error))) from error
    directory = repository.path or path  # None only for a Repository made without a path
    _permit(directory, name, *bounds)
    common = _common_directory(directory)
    objects = os.path.normpath(os.path.join(common, "objects"))
    return Store(
        path=path,
        repository=repository,
        odb=repository.odb,
        packs=pygit2.OdbBackendPack(objects),
        loose=_object_directories(objects),
        bounds=bounds,
        marks=Marks.of(path, directory, common),
    )


def _object_directories(objects: str) -> tuple[str, ...]:
    """An object directory and those that it borrows from, which may borrow in turn (gitrepository-layout(5))."""
    found = [objects]
    for directory in found:  # grows on the way
        try:
            with open(os.path.join(directory, "info/alternates"), "rb") as file:
                lines = file.read().splitlines()
        except OSError:
            continue
        for line in lines:
            place = os.path.normpath(os.path.join(directory, os.fsdecode(line)))
            if line and not line.startswith(b"#") and place not in found:
                found.append(place)
    return tuple(found)


def _unreadable(path: str, name: str, words: str) -> str:
    try:
        os.stat(path)
    except FileNotFoundError:
        return f"repository {name} does not exist - restore it, or set `repository` to where it is now"
    except OSError as error:
        return f"repository {name} cannot be reached ({error.strerror}) - let this account read it, or set `repository`"
    if "object format" in words:
        return f"repository {name} uses an object format (SHA-256) that this gateway's libgit2 cannot read: {words}"
    return (
        f"{name} is no git repository that can be read ({words}) - "
        "set `repository` to the top directory of a work tree or to a bare repository"
    )


@cache
def _prepare() -> None:
    """libgit2's settings for the whole process, at first use (security design, section 4.4).

    Ownership is not checked: that protects configuration and hooks which git would run, and nothing is run here. No
    configuration outside the store is read. `partialclone` tells libgit2 to open partial clones, where objects may
    be absent; a listing can live with absent files.
    """
    pygit2.option(Option.SET_OWNER_VALIDATION, False)
    for level in (ConfigLevel.SYSTEM, ConfigLevel.GLOBAL, ConfigLevel.XDG, ConfigLevel.PROGRAMDATA):
        pygit2.option(Option.SET_SEARCH_PATH, level, "")
    pygit2.option(Option.SET_EXTENSIONS, ["partialclone"], 1)


def _permit(path: str, name: str, roots: tuple[str, ...], hidden: tuple[str, ...]) -> None:
    """The same two rules as for every path a caller names (`tools._paths`), for the store and for the directory that
    a `.git` file leads to."""
    if roots == ("/",) and not hidden:
        return
    place = os.path.realpath(path)
    if any(below(place, os.path.realpath(directory)) for directory in hidden):
        raise Fault("E_NOT_A_REPO", f"repository {name} is inside the gateway's own configuration, which is never read")
    if not any(below(place, os.path.realpath(root)) for root in roots):
        raise Fault("E_NOT_A_REPO", f"repository {name} is outside what may be read here ({', '.join(roots)})")
