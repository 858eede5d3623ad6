"""Opening what a caller named: absolute, inside the caller's roots, never the gateway's own directory.

The check is made on the opened descriptor, not on the name: between a check of a name and its use a local account
could swap a directory for a link.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from tools._text import shown
from tools._tool import Context, ToolError

Identity = tuple[int, int]
"""(st_dev, st_ino): what a directory is, whatever path or bind mount it is seen through."""


class Refused(ToolError):
    """The path may not be read, whatever the kernel says; `str()` says which rule and what to do next."""


class Malformed(Refused):
    """The string is no absolute path, so nothing can be found under it."""


def checked(path: str) -> bytes:
    """The path as the kernel gets it. Raises Malformed for a path that is empty, relative or no file name can be."""
    if not path:
        raise Malformed("path is empty - give an absolute path, such as /var/log")
    if "\0" in path:
        raise Malformed(f"path {shown(path)} contains a NUL character - no file name can hold one")
    if not path.startswith("/"):
        raise Malformed(f"path {shown(path)} is relative - give an absolute path, such as /{shown(path)}")
    try:
        return path.encode("utf-8")
    except UnicodeEncodeError:
        raise Malformed(f"path {shown(path)} contains half a surrogate pair - it has no UTF-8 form") from None


class Reach:
    """What one call may open: for a call that opens many paths. Not for longer, since it remembers directories."""

    def __init__(self, context: Context) -> None:
        self._restricted = bool(context.hidden) or "/" not in context.roots
        self._everything = "/" in context.roots
        self._named_roots = ", ".join(context.roots)
        self._roots = frozenset() if self._everything else _identities(context.roots)
        self._hidden = _identities(context.hidden)
        self._permitted: set[bytes] = set()

    def locate(self, path: str) -> int:
        """As the function `locate`."""
        name = checked(path)
        try:
            descriptor = os.open(name, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            if self._restricted:
                self._permit(path, os.path.realpath(name))
            raise
        try:
            if self._restricted:
                self._permit(path, os.readlink(b"/proc/self/fd/%d" % descriptor))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _permit(self, path: str, place: bytes) -> None:
        """Raises Refused unless `place`, the kernel's own path of what was opened, may be read."""
        directory = place[: place.rfind(b"/") + 1]
        if directory in self._permitted and _identity(place) not in self._hidden:
            return
        above = frozenset(_ancestors(place))
        if not above.isdisjoint(self._hidden):
            raise Refused(f"path {shown(path)} is inside the gateway's own configuration, which is never shown")
        if not self._everything and above.isdisjoint(self._roots):
            raise Refused(
                f"path {shown(path)} is outside what may be read here - ask for something below {self._named_roots}"
            )
        if self._everything or _identity(place) not in self._roots:  # a root itself says nothing of its neighbours
            self._permitted.add(directory)


def locate(path: str, context: Context) -> int:
    """Opens `path` as the kernel reads it (links followed, `..` and `//` included) with O_PATH, which neither waits
    for a FIFO nor touches a device, and returns the descriptor once the place it leads to is one that may be read.

    Raises OSError as open(2) does, and Refused outside the roots or inside the gateway's own directory: there also
    for what does not exist, so that nobody learns what does.
    """
    return Reach(context).locate(path)


def reopen(descriptor: int, flags: int = os.O_RDONLY) -> int:
    """A descriptor from `locate`, opened for reading. The kernel checks the caller's rights to the file here.
    Never blocks: O_NONBLOCK, and no terminal becomes ours (O_NOCTTY)."""
    return os.open(f"/proc/self/fd/{descriptor}", flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


def open_directory(path: str, context: Context) -> int:
    """`path` opened as a directory (a link to one is entered, as `ls PATH/` does). Raises OSError
    (NotADirectoryError for anything else) and Refused."""
    descriptor = locate(path, context)
    try:
        return reopen(descriptor, os.O_RDONLY | os.O_DIRECTORY)
    finally:
        os.close(descriptor)


def hidden_identities(context: Context) -> frozenset[Identity]:
    """The directories that a walk must not enter, so that a bind mount shows them no more than their path does."""
    return _identities(context.hidden)


def below(place: str, directory: str) -> bool:
    """Whether `place` is `directory` or below it, on whole components."""
    return place == directory or directory == "/" or place.startswith(directory + "/")


def _ancestors(place: bytes) -> Iterator[Identity]:
    """`place` and the directories above it. Nothing for what has no path (a pipe below /proc/PID/fd)."""
    while place.startswith(b"/"):
        if (identity := _identity(place)) is not None:
            yield identity
        if place == b"/":
            return
        place = place[: place.rindex(b"/")] or b"/"


def _identity(place: bytes) -> Identity | None:
    """None for what is gone, or was never there: what is above it still decides."""
    try:
        status = os.lstat(place)  # not stat: a link that took a directory's place must not lend its target's identity
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _identities(directories: Iterable[str]) -> frozenset[Identity]:
    found = set()
    for directory in directories:
        try:
            status = os.stat(directory)
        except OSError:  # not there (or not to be seen): nothing to keep out of, or to read
            continue
        found.add((status.st_dev, status.st_ino))
    return frozenset(found)
