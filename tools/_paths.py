"""Opening what a caller named: absolute, inside the caller's roots, never the gateway's own directory.

The check is made on the opened descriptor, not on the name: between a check of a name and its use a local account
could swap a directory for a link.
"""

from __future__ import annotations

import os

from tools._text import shown
from tools._tool import Context, ToolError


class Refused(ToolError):
    """The path may not be read, whatever the kernel says; `str()` says which rule and what to do next."""


def checked(path: str) -> bytes:
    """The path as the kernel gets it. Raises Refused for a path that is empty, relative or holds NUL."""
    if not path:
        raise Refused("path is empty - give an absolute path, such as /var/log")
    if "\0" in path:
        raise Refused(f"path {shown(path)} contains a NUL character - no file name can hold one")
    if not path.startswith("/"):
        raise Refused(f"path {shown(path)} is relative - give an absolute path, such as /{shown(path)}")
    return path.encode("utf-8")


def locate(path: str, context: Context) -> int:
    """Opens `path` as the kernel reads it (links followed, `..` and `//` included) with O_PATH, which neither waits
    for a FIFO nor touches a device, and returns the descriptor once the place it leads to is one that may be read.

    Raises OSError as open(2) does, and Refused outside the roots or inside the gateway's own directory.
    """
    descriptor = os.open(checked(path), os.O_PATH | os.O_CLOEXEC)
    try:
        _permit(path, descriptor, context)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


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


def hidden_identities(context: Context) -> frozenset[tuple[int, int]]:
    """(st_dev, st_ino) of the directories that a walk must not enter, so that a bind mount shows them no more than
    their path does."""
    found = set()
    for directory in context.hidden:
        try:
            status = os.stat(directory)
        except OSError:  # not there (or not to be seen): nothing to keep out of
            continue
        found.add((status.st_dev, status.st_ino))
    return frozenset(found)


def _permit(path: str, descriptor: int, context: Context) -> None:
    if context.roots == ("/",) and not context.hidden:
        return
    place = os.readlink(f"/proc/self/fd/{descriptor}")
    if any(below(place, os.path.realpath(hidden)) for hidden in context.hidden):
        raise Refused(f"path {shown(path)} is inside the gateway's own configuration, which is never shown")
    if not any(below(place, os.path.realpath(root)) for root in context.roots):
        raise Refused(
            f"path {shown(path)} is outside what may be read here - ask for something below {', '.join(context.roots)}"
        )


def below(place: str, directory: str) -> bool:
    """Whether `place` is `directory` or below it, on whole components."""
    return place == directory or directory == "/" or place.startswith(directory + "/")
