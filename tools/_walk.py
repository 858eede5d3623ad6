"""Names below an opened directory, however deep: by descriptors, so that neither PATH_MAX nor a swapped link matters.

Directories are O_PATH descriptors (search only); each is opened for reading for as long as its names are read.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tools._paths import Identity

OPEN_LEVELS: Final = 32
"""How many directories of the branch being walked stay open. Deeper branches close the upper ones and come back to
them through `..`, so a tree of any depth fits a small RLIMIT_NOFILE."""

_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OUR_OWN_LACK: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def names(directory: int) -> list[bytes]:
    """The names in an opened directory (O_PATH is enough), in byte order. Raises OSError."""
    return sorted(os.listdir(_readable(directory)))


def paths(top: int, hidden: frozenset[Identity], found_more: Callable[[list[bytes]], None]) -> list[bytes]:
    """The relative paths of everything below the opened directory `top`: a directory before its contents, the names
    of each directory in byte order, links never entered. `top` stays open and is not closed here.

    Directories that cannot be read, and those in `hidden`, are listed and not entered. `found_more` gets the paths of
    one directory at a time. Raises OSError when `top` cannot be read, or when we have no descriptor or memory left:
    a list that silently lacks what we had no means to read would be wrong.
    """
    listed: list[bytes] = []
    branch = [_read(b"", b"", top)]
    found_more(branch[0].paths)
    try:
        while branch:
            level = branch[-1]
            if not level.directories:
                listed += level.paths[level.given :]
                _leave(branch, top, hidden)
                continue
            position = level.directories.pop()
            listed += level.paths[level.given : position + 1]
            level.given = position + 1
            entered = _enter(level, position, hidden)
            if entered is None:
                continue
            branch.append(entered)
            if len(branch) > OPEN_LEVELS + 1:
                _close(branch[-OPEN_LEVELS - 1])
            found_more(entered.paths)
    finally:
        for level in branch[1:]:
            _close(level)
    return listed


@dataclass(slots=True)
class _Level:
    """One directory of the branch being walked.

    name         its name in the directory above
    paths        what it holds, relative to the top, in byte order of names
    directories  the positions in `paths` still to be entered, last first
    given        how many of `paths` are already listed
    descriptor   None: closed to save descriptors, or out of reach (moved away while we were below it)
    """

    name: bytes
    identity: Identity
    paths: list[bytes]
    directories: list[int]
    given: int
    descriptor: int | None


def _read(name: bytes, path: bytes, descriptor: int) -> _Level:
    kinds = _kinds(descriptor)
    ordered = sorted(kinds)
    return _Level(
        name=name,
        identity=_identity(descriptor),
        paths=[path + b"/" + each for each in ordered] if path else ordered,
        directories=[position for position in range(len(ordered) - 1, -1, -1) if kinds[ordered[position]]]
        if True in kinds.values()
        else [],
        given=0,
        descriptor=descriptor,
    )


def _kinds(descriptor: int) -> dict[bytes, bool]:
    """{name: whether it is a directory}"""
    try:
        with os.scandir(_readable(descriptor)) as entries:
            return {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    except OSError:  # reading failed, and does so again; or an entry's type is not told and it cannot be looked at
        with os.scandir(_readable(descriptor)) as entries:
            return {entry.name: _is_directory(entry) for entry in entries}


def _is_directory(entry: os.DirEntry[bytes]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:  # what cannot be looked at could not be entered either
        return False


def _enter(level: _Level, position: int, hidden: frozenset[Identity]) -> _Level | None:
    if level.descriptor is None:
        return None
    path = level.paths[position]
    name = path[path.rfind(b"/") + 1 :]
    descriptor = _open(name, level.descriptor)
    if descriptor is None:
        return None
    entered = None
    try:
        if _identity(descriptor) not in hidden:
            entered = _read(name, path, descriptor)
    except OSError as error:
        _excuse(error)
    finally:
        if entered is None:
            os.close(descriptor)
    return entered


def _leave(branch: list[_Level], top: int, hidden: frozenset[Identity]) -> None:
    """Goes back up one level, and opens that again if it was closed."""
    left = branch.pop()
    if not branch:
        return  # that was the top, which belongs to the caller
    try:
        if branch[-1].descriptor is None:
            branch[-1].descriptor = _above(left, branch[-1].identity)
        if branch[-1].descriptor is None:
            branch[-1].descriptor = _down(top, branch, hidden)
    finally:
        _close(left)


def _above(level: _Level, expected: Identity) -> int | None:
    """The directory above through `..`, unless `level` has been moved elsewhere meanwhile."""
    descriptor = None if level.descriptor is None else _open(b"..", level.descriptor)
    if descriptor is None or _identity(descriptor) == expected:
        return descriptor
    os.close(descriptor)
    return None


def _down(top: int, branch: list[_Level], hidden: frozenset[Identity]) -> int | None:
    """The last level of the branch by its names from the top, None when it is no longer there."""
    reached = os.dup(top)
    for level in branch[1:]:
        try:
            following = _open(level.name, reached)
        finally:
            os.close(reached)
        if following is None:
            return None
        reached = following
        if _identity(reached) in hidden:
            os.close(reached)
            return None
    return reached


def _open(name: bytes, directory: int) -> int | None:
    """A directory in another one, None when it cannot be had (no longer there, a link now, not permitted)."""
    try:
        return os.open(name, _DIRECTORY, dir_fd=directory)
    except OSError as error:
        _excuse(error)
        return None


def _excuse(error: OSError) -> None:
    """Lets pass that a directory cannot be read, and raises that we lack the means to."""
    if error.errno in _OUR_OWN_LACK:
        raise error


def _identity(descriptor: int) -> Identity:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _close(level: _Level) -> None:
    if level.descriptor is not None:
        os.close(level.descriptor)
        level.descriptor = None


def _readable(descriptor: int) -> bytes:
    """An O_PATH descriptor as a path to open for reading; as bytes, so that names come as bytes in any locale."""
    return b"/proc/self/fd/%d" % descriptor
